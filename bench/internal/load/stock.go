package load

// stock has the prepared traces of one writer, whose artifacts are made but not sealed. This is fair:
// the limit and the other stores of bench/peers get their bytes ready-made too.
type stock struct {
	*Maker
	ready []*Trace
	taken int // since it was filled
	most  int // what may lie ready
}

// next returns the next prepared trace. If the stock is used up, it makes one within the measured
// time.
func (s *stock) next() *Trace {
	s.taken++
	last := len(s.ready) - 1
	if last < 0 {
		return s.Maker.Next()
	}
	t := s.ready[last]
	s.ready[last], s.ready = nil, s.ready[:last]
	return t
}

type stocks []*stock

// stockBytes bounds the stock of a subject by the bytes of its text.
const stockBytes = 32 << 20

func (s *Store) stocks(writers int) stocks {
	out := make(stocks, writers)
	for w, m := range s.Makers(writers) {
		most := stockBytes / writers / max(4*s.Size, 4<<10)
		out[w] = &stock{Maker: m, most: most, taken: 16}
	}
	return out
}

// fill prepares as many traces as the last slice took, and a quarter more. It keeps no more than that,
// because the stock is part of the heap: a large heap is collected less often, which would make every
// case look cheaper. In the first round most traces are made within the measured time.
func (s stocks) fill() error {
	for _, st := range s {
		want := min(st.taken+st.taken/4+1, st.most)
		if len(st.ready) > want {
			clear(st.ready[want:])
			st.ready = st.ready[:want]
		}
		for len(st.ready) < want {
			t := st.Maker.Next()
			t.Prepare()
			st.ready = append(st.ready, t)
		}
		st.taken = 0
	}
	return nil
}
