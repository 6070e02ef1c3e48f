// Package witness has no code of its own. Its tests have tgad speak the protocol of witnesses (C2SP tlog-witness) with the
// programs of others: litewitness of filippo.io/torchwood signs the checkpoints of a store, and a log of
// github.com/transparency-dev/tessera has its checkpoints signed by `tgad witness serve`. It is a module of its own, so that
// none of this is among what tgad needs.
package witness
