// Package github looks at issues, pull requests and commits through GitHub's REST API.
//
//	[[verifier]]
//	resource_type = "github_issue"       # or github_pr, commit_sha
//	type          = "github"
//	base_url      = "https://api.github.com"  # https://HOST/api/v3 for an Enterprise Server
//	token_file    = "/etc/tgad/github.token"  # mode 0600; "" = what anybody may see
//	ca_file       = ""
//	ignore        = []                   # of "etag" and "version"
//	timeout, tries, delay, max_delay, settle, settle_every as in package httpcheck
//
// A verifier serves all three resource types; the file has a table for each that is used:
//
//	resource_type  resource_id    version, where the change has one
//	github_issue   owner/repo#7   its state (open, closed), or updated_at
//	github_pr      owner/repo#7   its state (open, closed, merged), its head commit, or updated_at
//	commit_sha     owner/repo@sha the full id of the commit
//
// The form of a version tells which of them it is: a word, 40 or 64 hex digits, or a time
// in RFC 3339. For any other version the verifier cannot tell. ETags are compared weakly.
// GitHub's ETags depend on the token, so a change should have one only if tool and
// verifier use the same token.
//
// GitHub answers 404 both for a missing resource and for one that the token may not see.
// So 404 means gone only if the repository itself answers; otherwise the verifier cannot
// tell. 410 is a deleted issue, 422 a commit that the repository does not have. An issue
// that is a pull request by now has changed. For a resource that was moved (301) the
// verifier cannot tell: it does not follow redirects, so that the token stays with its
// host. A commit of a fork is also found in the parent repository.
//
// # Invariants
//
//	seen    404 is gone only beside a repository that answers  [look.gone]   TestFindings
//	same    an answer about another number or commit is none   [look.judge]  TestFindings
//	secret  the token stands nowhere                           [web.Client]  TestTokenStaysIn
package github
