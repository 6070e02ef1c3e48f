package deliver

import "context"

const MostRecords = mostRecords

// Step is one look at the log.
func (d *Delivery) Step(ctx context.Context) (more bool, err error) { return d.turn(ctx) }
