package runtime

import "sync/atomic"

// demands are what the operator requires of every approval. They change while calls run. Each step
// reads them again, so a stricter demand also holds for requests that wait already.
type demands struct{ self, capability atomic.Bool }

// selfApproval is [Trust.SelfApproval], as it is now.
func (d *demands) selfApproval() bool { return d.self.Load() }

// capabilityNeeded is [Trust.RequireCapability], as it is now.
func (d *demands) capabilityNeeded() bool { return d.capability.Load() }

// Demand changes [Trust.SelfApproval] and [Trust.RequireCapability] of a Runtime that is in use.
// Everything else in [Options] that may change is a function, which may return another value each
// time.
func (rt *Runtime) Demand(selfApproval, requireCapability bool) {
	rt.demands.self.Store(selfApproval)
	rt.demands.capability.Store(requireCapability)
}
