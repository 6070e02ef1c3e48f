package hostdir

// SetFault makes a Dir call f before (done is false) and after each change that a restore
// makes in the directory. An error of f counts as an error of the file system.
func (d *Dir) SetFault(f func(op, name string, done bool) error) { d.fault = f }
