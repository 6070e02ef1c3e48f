package deliver

import "context"

const MostRecords = mostRecords

// Step looks at the log once.
func (d *Delivery) Step(ctx context.Context) (more bool, err error) { return d.turn(ctx) }
