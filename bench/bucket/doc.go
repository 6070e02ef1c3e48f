// Package bucket runs backups against a server that speaks the protocol of Amazon S3. It is a separate
// module, so that programs that embed tgad do not get that server's dependencies.
package bucket
