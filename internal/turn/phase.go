package turn

// Phase is one of the seven parts of a turn.
type Phase string

// The phases, in order (OSSA 0.2.9 §1).
const (
	Init      Phase = "init"
	Normalize Phase = "normalize"
	Resolve   Phase = "resolve"
	Infer     Phase = "infer"
	Execute   Phase = "execute"
	Persist   Phase = "persist"
	Emit      Phase = "emit"
)
