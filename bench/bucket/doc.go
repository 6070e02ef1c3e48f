// Package bucket runs backups against a server that speaks the protocol of Amazon S3. It is a module of
// its own, so that nobody who embeds tgad gets that server's dependencies.
package bucket
