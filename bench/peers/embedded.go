package main

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/dgraph-io/badger/v4"
	"github.com/hashicorp/raft"
	wal "github.com/hashicorp/raft-wal"
	"go.etcd.io/bbolt"
)

// openRaftWAL opens hashicorp/raft-wal with a group commit in front of it. It is a log and
// nothing else: it finds a record only by its number.
func openRaftWAL(dir string, _ int) (*peer, error) {
	log, err := wal.Open(dir)
	if err != nil {
		return nil, err
	}
	var syncs atomic.Uint64
	next := uint64(0)
	g := newGroup(func(batch []record) error {
		logs := make([]*raft.Log, len(batch))
		for i, r := range batch {
			next++
			logs[i] = &raft.Log{Index: next, Term: 1, Data: r.value, Extensions: r.key}
		}
		syncs.Add(1)
		return log.StoreLogs(logs)
	})
	return &peer{setting: "group commit before it; no index", syncs: syncs.Load,
		put: func(_ int, key, value []byte) error { return g.put(key, value) },
		close: func() error {
			g.close()
			return log.Close()
		}}, nil
}

// openBbolt opens bbolt. Several writers use DB.Batch, which joins callers into one commit. A
// single writer would only wait in it.
func openBbolt(dir string, writers int) (*peer, error) {
	db, err := bbolt.Open(filepath.Join(dir, "db"), 0o600, nil)
	if err != nil {
		return nil, err
	}
	bucket := []byte("log")
	if err := db.Update(func(tx *bbolt.Tx) error {
		_, err := tx.CreateBucketIfNotExists(bucket)
		return err
	}); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	commit, setting := db.Update, "Update, NoSync false"
	if writers > 1 {
		commit, setting = db.Batch, "Batch of up to the writers, NoSync false"
		db.MaxBatchSize = writers
	}
	return &peer{setting: setting, close: db.Close, put: func(_ int, key, value []byte) error {
		return commit(func(tx *bbolt.Tx) error { return tx.Bucket(bucket).Put(key, value) })
	}}, nil
}

// openBadger opens badger, each record a transaction.
func openBadger(dir string, _ int) (*peer, error) {
	db, err := badger.Open(badger.DefaultOptions(dir).WithSyncWrites(true).WithLogger(nil))
	if err != nil {
		return nil, err
	}
	return &peer{setting: "SyncWrites", close: db.Close, put: func(_ int, key, value []byte) error {
		key = append([]byte(nil), key...) // kept until the commit is over
		return db.Update(func(tx *badger.Txn) error { return tx.Set(key, value) })
	}}, nil
}

// openJSONLines is a file with a line per record and fsync after each, as hand-written
// audit logs are.
func openJSONLines(dir string, _ int) (*peer, error) {
	f, err := os.OpenFile(filepath.Join(dir, "log.jsonl"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	var mu sync.Mutex
	var syncs atomic.Uint64
	return &peer{setting: "write and fsync per line; no index", syncs: syncs.Load, close: f.Close, put: func(_ int, _, value []byte) error {
		mu.Lock()
		defer mu.Unlock()
		if _, err := f.Write(append(value, '\n')); err != nil {
			return err
		}
		syncs.Add(1)
		return f.Sync()
	}}, nil
}
