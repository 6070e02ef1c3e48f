// Package capability mints and checks the tokens that are made from approvals. The holder
// of a token may make one call of one trace, with exactly the arguments that were
// approved, for a limited time.
//
// A token is a compact JWS (RFC 7515) with the algorithm EdDSA over Ed25519 (RFC 8037).
// [Ring] is the [runtime.Capabilities] of a process that has the private key. An
// auditor has the public keys alone, see [Ring.JWKS] and [VerifyDetached].
//
// # Token
//
//	header   {"alg":"EdDSA","kid":"…","typ":"JWT"}
//	claims   {"aud","constraints":{"args_digest","read_only","tool_name",
//	         "tool_schema_digest","tool_server"},"exp","iat","iss","nbf","nonce",
//	         "plan_id","trace_id"}
//
// Both are canonical JSON and have these members and no other. Times are whole seconds
// since the Unix epoch. A tool without a definition has 64 zeros for its digest.
//
// # Key file
//
// PEM: the active key as PRIVATE KEY (PKCS #8), then each earlier one as PUBLIC KEY
// (RFC 8410) with a header Until. A key that was rotated out is kept as its public half
// alone. To revoke a key at once, delete its block and call [Ring.Reload]. A key's id is the
// first 16 hex digits of the SHA-256 of its 32 public bytes.
//
// # Invariants
//
//	one form    a token has one spelling: encoding its content again      [open]                TestEveryByteOfATokenCounts, FuzzToken
//	            gives the same token
//	one alg     the key's kind decides, not the token's header            [open]                TestOtherAlgorithmsAreRefused
//	this call   each constraint equals the grant                          [Claims.Permits]      TestATokenPermitsOneCall
//	in time     nbf-skew <= now < exp+skew                                [Claims.ValidAt]      TestTimesAtTheirLimits
//	key's life  no token outlives its key                                 [open]                TestRetiredKeys
//	secret      the private key is read by its owner alone, and is not    [readKeys], [outside] TestKeyFileIsPrivate, TestKeyFileInTheStoreIsRefused
//	            where a backup of the store would take it along
package capability
