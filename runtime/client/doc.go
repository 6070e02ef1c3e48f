// Package client talks to a tgad daemon over its unix socket.
//
// It gives the methods of [runtime.Runtime] to a process that does not hold the store,
// with the same requests, results and errors: a refusal by the daemon comes back as the
// [tga.Error] that it made. Client and daemon exchange the messages of package wire.
//
// # Usage
//
// [New] makes a client of a socket and does not dial. Call [Client.Ready] to find out
// whether the daemon serves. [Client.Call] makes a governed call; [Client.Begin] and
// [Client.Finish] are for a program that sends its calls itself:
//
//	c := client.New("/run/tgad/tgad.sock", client.Options{Name: "my-gateway"})
//	defer c.Close()
//	res, err := c.Call(ctx, runtime.Request{Server: "payments", Tool: "charge", Key: "order-1", Args: args})
//
// Match the code of an error with errors.Is, as in errors.Is(err, tga.EffectInDoubt). If
// the connection breaks, make the call again with the same key: the daemon does not send a
// call twice whose effect it has recorded.
package client
