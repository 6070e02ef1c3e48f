package runtime

// share makes what the loop, its steps and those outside have in common.
func share(rt *Runtime) {
	store, o := rt.store, &rt.opts
	rt.spans = spans{o.Tracer, store}
	rt.mint = &minter{clock: rt.clock, newID: o.NewID, rand: o.Rand, limits: o.Limits, agentID: o.AgentID}
	rt.timers = newTimers(store, rt.clock, o.Rand)
	rt.timers.serve = rt.serveTimer
	rt.traces = &traces{store: store, timers: rt.timers, policy: o.Policy}
	rt.results = &results{store: store}
	rt.executors = &executors{store: store, clock: rt.clock, lock: o.Lock}
	rt.licences = &licences{policy: o.Policy, profile: o.Profile, mint: rt.mint}
	rt.queries = &queries{store: store, clock: rt.clock, executors: rt.executors, licences: rt.licences, profile: o.Profile}
	rt.redact = redactions{by: o.Redact, mint: rt.mint, held: &heldArgs{}}
	rt.answers = &answers{rules: o.Trust.Outcome, maxAnswer: o.MaxAnswer, redact: rt.redact}
	rt.observe = observer(o.Observe)
	rt.doubts = &doubts{clock: rt.clock, mint: rt.mint, observe: rt.observe, counts: rt.counts}
	rt.retries = &retries{
		store: store, clock: rt.clock, mint: rt.mint, timers: rt.timers, counts: rt.counts, profile: o.Profile, calls: rt,
	}
	rt.departures = &departures{store: rt.store, clock: rt.clock, born: rt.clock.Read()}
	rt.ends = &ends{
		store: store, mint: rt.mint, answers: rt.answers, executors: rt.executors, departures: rt.departures,
		retries: rt.retries, doubts: rt.doubts, observe: rt.observe, counts: rt.counts,
	}
	rt.names = &nameLocks{}
	rt.demands = &demands{}
	rt.Demand(o.Trust.SelfApproval, o.Trust.RequireCapability)
}

// takeSteps makes what the loop does in its states.
func takeSteps(rt *Runtime, supervisor Supervisor) {
	store, trust := rt.store, &rt.opts.Trust
	rt.admission = &admission{tools: rt.tools, profile: rt.opts.Profile}
	rt.rules = &rules{store: store, supervisor: supervisor}
	rt.tokens = &tokens{
		capabilities: trust.Capabilities, demands: rt.demands, supervisor: trust.Supervisor, schema: trust.Schema,
		policy: rt.opts.Policy, profile: rt.opts.Profile,
	}
	rt.approvals = &approvals{
		store: store, clock: rt.clock, mint: rt.mint, rules: rt.rules, tokens: rt.tokens, ends: rt.ends,
		counts: rt.counts, demands: rt.demands,
	}
	rt.confirmations = &confirmations{
		store: store, clock: rt.clock, verifier: trust.Verifier, approvals: rt.approvals,
		redact: rt.redact, counts: rt.counts, demands: rt.demands,
	}
	rt.records = &records{store: store, confirmations: rt.confirmations, ends: rt.ends, counts: rt.counts}
	rt.waits = &waits{store: store, clock: rt.clock, executors: rt.executors, ends: rt.ends, counts: rt.counts}
	rt.probes = &probes{
		store: store, prober: trust.Prober, licences: rt.licences, clock: rt.clock, mint: rt.mint, departures: rt.departures, executors: rt.executors,
		answers: rt.answers, ends: rt.ends, doubts: rt.doubts, timers: rt.timers, counts: rt.counts,
	}
}

// openDoors makes what answers the questions from outside that are not simply a call.
func openDoors(rt *Runtime) {
	store := rt.store
	rt.keys = &derivedKeys{store: store, mint: rt.mint}
	rt.stands = &stands{store: store, mint: rt.mint, traces: rt.traces, executors: rt.executors, queries: rt.queries}
	repeats := &repeats{
		store: store, clock: rt.clock, mint: rt.mint, executors: rt.executors, queries: rt.queries, results: rt.results, policy: rt.opts.Policy,
	}
	rt.deliveries = &deliveries{store: store, lists: &listLocks{rt.names, store}, traces: rt.traces, keys: rt.keys, repeats: repeats}
	rt.begins = &begins{
		store: store, clock: rt.clock, rules: rt.rules, executors: rt.executors, queries: rt.queries, ends: rt.ends, traces: rt.traces,
		results: rt.results, keys: rt.keys, redact: rt.redact, ids: &beginIDs{store: store, names: rt.names, mint: rt.mint}, stands: rt.stands,
		repeats: repeats, deliveries: rt.deliveries, calls: rt, demands: rt.demands,
	}
	rt.finishes = &finishes{
		store: store, mint: rt.mint, traces: rt.traces, results: rt.results, executors: rt.executors,
		answers: rt.answers, ends: rt.ends, doubts: rt.doubts, redact: rt.redact, calls: rt,
	}
	rt.settlements = &settlements{
		store: store, traces: rt.traces, executors: rt.executors, queries: rt.queries, mint: rt.mint, answers: rt.answers, ends: rt.ends,
		counts: rt.counts, calls: rt,
	}
	rt.compensations = &compensations{store: store, results: rt.results, inverses: rt.opts.Trust.Inverse, calls: rt}
	rt.classifier = &classifier{store: store, executors: rt.executors, departures: rt.departures, policy: rt.opts.Policy}
}
