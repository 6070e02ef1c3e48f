// Package adapters has the adapters of the kill test (docs/TORTURE.md) for engines that tgad does not
// link: tgad with its store in PostgreSQL, DBOS, Restate and River. Each is a small program as the engine's own
// documentation recommends one. The module is of its own, so that nobody else pays for them.
package adapters
