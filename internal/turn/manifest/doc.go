// Package manifest reads agents from OSSA manifests: YAML or JSON, of version 0.2 or later, with
// the field names of the runtime semantics and of the published schemas.
//
// Real manifests seldom validate against a schema, and the schema of 0.2.9 has no place for
// fields that the semantics of 0.2.9 require. So a manifest need not be valid. The reader takes
// every value that a runtime can act on, from the place that [Fields] lists first. The [Report]
// says which values were taken from where, which were ignored, and which contradict each other.
// Only a manifest that cannot be run is an error.
//
// # Invariants
//
//	bounded  no input makes the reader hold more than MaxNodes values     [grow]         TestLimits
//	placed   every mistake names its line, column and JSON Pointer        [Mistake]      TestMistakesAreShownWhereTheyAre
//	nothing  a manifest is acted on or listed in the report, never lost   [Report]       TestEveryValueIsTakenOrListed
//	silent
//	listed   the order in which places are looked at is docs/OSSA.md's    [Fields]       TestFieldsAreTheDocuments
package manifest
