package main

import (
	"errors"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

// openNATS runs a NATS server in this process with one JetStream stream in files, synced
// after every message, and publishes over connections in memory.
func openNATS(dir string, writers int) (*peer, error) {
	s, err := server.NewServer(&server.Options{JetStream: true, StoreDir: dir, SyncAlways: true, DontListen: true, NoSigs: true, NoLog: true})
	if err != nil {
		return nil, err
	}
	go s.Start()
	if !s.ReadyForConnections(10 * time.Second) {
		return nil, errors.New("the NATS server did not start within 10 s")
	}
	stop := func() error {
		s.Shutdown()
		s.WaitForShutdown()
		return nil
	}
	streams := make([]nats.JetStreamContext, writers)
	for w := range streams {
		conn, err := nats.Connect("", nats.InProcessServer(s))
		if err == nil {
			streams[w], err = conn.JetStream(nats.MaxWait(time.Minute))
		}
		if err == nil && w == 0 {
			_, err = streams[w].AddStream(&nats.StreamConfig{Name: "log", Subjects: []string{"log"}, Storage: nats.FileStorage})
		}
		if err != nil {
			return nil, errors.Join(err, stop())
		}
	}
	return &peer{setting: "file storage, SyncAlways, a connection per writer in memory", close: stop,
		put: func(w int, _, value []byte) error {
			_, err := streams[w].Publish("log", value)
			return err
		}}, nil
}
