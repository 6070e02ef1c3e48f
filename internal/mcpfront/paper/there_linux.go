package paper

import "golang.org/x/sys/unix"

// pollClosed is the event of poll(2) that the other end of a socket has closed its side; 0 is none.
const pollClosed = unix.POLLRDHUP
