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
// Which of them a version is, its form says: a word, 40 or 64 hex digits, a time in RFC
// 3339. Any other cannot be told. ETags are compared weakly; GitHub's depend on the
// token too, so a change should carry one only where both use the same.
//
// GitHub says 404 of what a token may not see as of what is not there. A 404 is gone
// only where the repository itself answers; a repository that does not answer cannot be
// told. 410 is a deleted issue, 422 a commit that the repository does not have. An issue
// that is a pull request by now is changed, and what was moved elsewhere (301) cannot
// be told: redirects are not followed, so that the token stays with its host. A commit of
// a fork answers under its parent too.
//
// # Invariants
//
//	seen    404 is gone only beside a repository that answers  [look.gone]   TestFindings
//	same    an answer about another number or commit is none   [look.judge]  TestFindings
//	secret  the token stands nowhere                           [web.Client]  TestTokenStaysIn
package github
