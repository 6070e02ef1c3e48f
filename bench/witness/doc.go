// Package witness has only tests. They check that tgad speaks the protocol of witnesses (C2SP tlog-witness) with programs of
// others: litewitness of filippo.io/torchwood signs the checkpoints of a store, and `tgad witness serve` signs those of a log
// of github.com/transparency-dev/tessera. It is a separate module, so that tgad itself does not depend on these programs.
package witness
