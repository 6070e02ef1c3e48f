// Package s3 implements [bucket.Objects] for services with the protocol of Amazon S3.
package s3

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/tgad/tgad/internal/backup/bucket"
	"github.com/tgad/tgad/internal/secretfile"
	"github.com/tgad/tgad/internal/verify"
	"github.com/tgad/tgad/schemas/tga"
)

// Options say which bucket, and where. A value "" is taken from the environment variables that
// other programs for S3 read.
type Options struct {
	Address         string // s3://BUCKET/PREFIX
	Endpoint        string // URL of the service; "" = AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, Amazon's
	Region          string // "" = AWS_REGION, AWS_DEFAULT_REGION, the one that the service names
	CredentialsFile string // "" = AWS_ACCESS_KEY_ID and so on, then AWS_SHARED_CREDENTIALS_FILE or ~/.aws
	CAFile          string // "" = AWS_CA_BUNDLE, the system's
}

// amazon is the service that is used if none is named.
const amazon = "https://s3.amazonaws.com"

// Bounds of one request.
const (
	connectTime = 10 * time.Second
	answerTime  = 30 * time.Second // until an answer begins
	idleTime    = time.Minute      // without a byte in either direction
	retries     = 4                // of a request that fails with 5xx, 429 or a broken connection
)

// Objects is one bucket, below a prefix.
type Objects struct {
	core           minio.Core
	bucket, prefix string
	idle           time.Duration
}

var _ bucket.Objects = (*Objects)(nil)

// Open prepares a bucket without sending a request to it. VALIDATION_ERROR: something that is
// needed is missing.
func Open(o Options) (*Objects, error) {
	name, prefix, err := bucket.Parse(o.Address)
	if err != nil {
		return nil, err
	}
	invalid := func(what string, err error) error { return tga.Errorf(tga.ValidationError, "%s: %w", what, err) }
	endpoint := cmp.Or(o.Endpoint, os.Getenv("AWS_ENDPOINT_URL_S3"), os.Getenv("AWS_ENDPOINT_URL"), amazon)
	at, err := url.Parse(endpoint)
	if err != nil || at.Host == "" || at.User != nil || at.Scheme != "http" && at.Scheme != "https" {
		return nil, tga.Errorf(tga.ValidationError, "the endpoint of the bucket: want http:// or https:// and a host, without a password")
	}
	transport, err := minio.DefaultTransport(at.Scheme == "https")
	if err != nil {
		return nil, invalid("bucket", err)
	}
	if transport.TLSClientConfig, err = verify.Trusting(cmp.Or(o.CAFile, os.Getenv("AWS_CA_BUNDLE"))); err != nil {
		return nil, err
	}
	transport.ResponseHeaderTimeout, transport.TLSHandshakeTimeout = answerTime, connectTime
	keys, err := keysOf(o.CredentialsFile, transport)
	if err != nil {
		return nil, err
	}
	client, err := minio.New(at.Host, &minio.Options{
		Creds: keys, Secure: at.Scheme == "https", Transport: transport, MaxRetries: retries,
		Region: cmp.Or(o.Region, os.Getenv("AWS_REGION"), os.Getenv("AWS_DEFAULT_REGION")),
	})
	if err != nil {
		return nil, invalid("bucket", err)
	}
	client.SetAppInfo("tgad", "1")
	return &Objects{core: minio.Core{Client: client}, bucket: name, prefix: prefix, idle: idleTime}, nil
}

// keysOf finds the credentials. They are read again when they expire.
func keysOf(file string, transport *http.Transport) (*credentials.Credentials, error) {
	providers := []credentials.Provider{&credentials.EnvAWS{}, &credentials.FileAWSCredentials{}}
	if file != "" {
		if _, err := secretfile.Read(file); err != nil { // only checks who may read the file
			return nil, tga.Errorf(tga.ValidationError, "credentials_file: %w", err)
		}
		providers = []credentials.Provider{&credentials.FileAWSCredentials{Filename: file}}
	}
	keys := credentials.NewChainCredentials(providers)
	v, err := keys.GetWithContext(&credentials.CredContext{Client: &http.Client{Transport: transport}})
	if err != nil || v.AccessKeyID == "" || v.SecretAccessKey == "" {
		// Do not repeat the error: it could hold a part of the file.
		return nil, tga.Errorf(tga.ValidationError, "there are no credentials for the bucket: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or name a credentials_file")
	}
	return keys, nil
}

// Put implements [bucket.Objects].
func (o *Objects) Put(ctx context.Context, name string, body io.ReadSeeker, size int64, sum [32]byte) error {
	w, ctx := o.watch(ctx)
	defer w.stop()
	_, err := o.core.PutObject(ctx, o.bucket, o.prefix+name, &moving{body, w}, size, "", hex.EncodeToString(sum[:]), minio.PutObjectOptions{ContentType: "application/octet-stream"})
	return w.told(plain(err))
}

// Swap implements [bucket.Objects].
func (o *Objects) Swap(ctx context.Context, name string, body []byte, tag string) (string, error) {
	w, ctx := o.watch(ctx)
	defer w.stop()
	sum := sha256.Sum256(body)
	put := func(opts minio.PutObjectOptions) (string, error) {
		info, err := o.core.PutObject(ctx, o.bucket, o.prefix+name, &moving{bytes.NewReader(body), w}, int64(len(body)), "", hex.EncodeToString(sum[:]), opts)
		return info.ETag, w.told(plain(err))
	}
	opts := minio.PutObjectOptions{ContentType: "application/json"}
	if tag == "" {
		opts.SetMatchETagExcept("*")
	} else {
		opts.SetMatchETag(tag)
	}
	next, err := put(opts)
	if e := minio.ToErrorResponse(err); err != nil && e.StatusCode == http.StatusNotImplemented {
		return put(minio.PutObjectOptions{ContentType: "application/json"})
	}
	return next, err
}

// Has implements [bucket.Objects].
func (o *Objects) Has(ctx context.Context, name string) (bool, error) {
	w, ctx := o.watch(ctx)
	defer w.stop()
	_, err := o.core.StatObject(ctx, o.bucket, o.prefix+name, minio.StatObjectOptions{})
	if err = w.told(plain(err)); errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// Get implements [bucket.Objects].
func (o *Objects) Get(ctx context.Context, name string) (io.ReadCloser, string, error) {
	w, ctx := o.watch(ctx)
	body, info, _, err := o.core.GetObject(ctx, o.bucket, o.prefix+name, minio.GetObjectOptions{})
	if err != nil {
		w.stop()
		return nil, "", w.told(plain(err))
	}
	return &watched{body, w}, info.ETag, nil
}

// List implements [bucket.Objects].
func (o *Objects) List(ctx context.Context, prefix string) iter.Seq2[bucket.Object, error] {
	return func(yield func(bucket.Object, error) bool) {
		w, ctx := o.watch(ctx)
		defer w.stop()
		for info := range o.core.ListObjectsIter(ctx, o.bucket, minio.ListObjectsOptions{Prefix: o.prefix + prefix, Recursive: true}) {
			w.moved()
			err := w.told(plain(info.Err))
			if !yield(bucket.Object{Name: strings.TrimPrefix(info.Key, o.prefix), Changed: info.LastModified}, err) || err != nil {
				return
			}
		}
	}
}

// Delete implements [bucket.Objects].
func (o *Objects) Delete(ctx context.Context, name string) error {
	w, ctx := o.watch(ctx)
	defer w.stop()
	err := w.told(plain(o.core.RemoveObject(ctx, o.bucket, o.prefix+name, minio.RemoveObjectOptions{})))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// plain turns an error of the service into the errors that [bucket.Objects] promises.
func plain(err error) error {
	if err == nil {
		return nil
	}
	switch e := minio.ToErrorResponse(err); {
	case e.Code == minio.NoSuchKey:
		return fmt.Errorf("%w: %w", fs.ErrNotExist, err)
	case e.StatusCode == http.StatusPreconditionFailed, e.Code == "PreconditionFailed", e.Code == "ConditionalRequestConflict":
		return fmt.Errorf("%w: %w", bucket.ErrChanged, err)
	}
	return err
}
