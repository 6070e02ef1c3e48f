// Package manifest reads what an agent is made of from an OSSA manifest: YAML or JSON,
// of version 0.2 or later, in the names of the runtime semantics and in those of the
// published schemas.
//
// Manifests in the world seldom validate against a schema, and the schema of 0.2.9 has no
// place for fields that the semantics of 0.2.9 require. So validity is no gate: what a
// runtime can act on is taken, from the place that [Fields] puts first, and the [Report]
// says what was taken from where, what was passed over, and what contradicts. Only what
// can't be run is an error.
//
// # Invariants
//
//	bounded  no input makes the reader hold more than MaxNodes values     [grow]         TestLimits
//	placed   every mistake names its line, column and JSON Pointer        [Mistake]      TestMistakesAreShownWhereTheyAre
//	nothing  a manifest is acted on or listed in the report, never lost   [Report]       TestEveryValueIsTakenOrListed
//	silent
//	listed   the order in which places are looked at is docs/OSSA.md's    [Fields]       TestFieldsAreTheDocuments
package manifest
