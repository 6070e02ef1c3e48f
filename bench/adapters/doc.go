// Package adapters has the adapters of the kill test (docs/TORTURE.md) for engines that tgad does not
// link: tgad with its store in PostgreSQL, DBOS, Restate and River. Each is a small program, written as the engine's own
// documentation recommends. It is a separate module, so that other programs do not get these dependencies.
package adapters
