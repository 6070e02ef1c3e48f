package hostdir

// SetFault makes a Dir ask f before (done is false) and after each change that a restore
// makes in the directory: what f returns is what the file system says.
func (d *Dir) SetFault(f func(op, name string, done bool) error) { d.fault = f }
