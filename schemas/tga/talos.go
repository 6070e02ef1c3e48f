package tga

import "fmt"

// CheckTalos returns SCHEMA_VIOLATION, with a pointer to the member, if the public Talos v1
// schemas refuse an artifact that this package accepts. They refuse more than this package's
// tables only in the points below (docs/FORMAT.md, "Talos").
func (a *Artifact) CheckTalos() error {
	switch a.Type {
	case RequestType:
		return a.inArtifact(a.Request.Proposal.CheckTalosNames(), "/proposal")
	case DecisionType:
		d := a.Decision
		switch {
		case d.Decision == Approve && d.MintedCapability == "":
			return a.notTalos("/minted_capability", "an approval carries a capability")
		case d.Decision != Approve && d.MintedCapability != "":
			return a.notTalos("/minted_capability", "%s carries no capability", d.Decision)
		}
	case CallType:
		if a.Call.CapabilityDigest.IsZero() {
			return a.notTalos("/capability_digest", "a call names the digest of its capability")
		}
		return a.inArtifact(a.Call.Call.CheckTalosNames(), "/call")
	case EffectType:
		if e := a.Effect.Outcome.Error; e != nil && e.Message == "" {
			return a.notTalos("/outcome/error/message", "an error has a message")
		}
		for i, h := range a.Effect.DocumentHashes {
			if h.SizeBytes < 0 {
				return a.notTalos(fmt.Sprintf("/document_hashes/%d/size_bytes", i), "a document's digest stands beside its size")
			}
		}
	}
	return nil
}

func (a *Artifact) notTalos(at, format string, args ...any) error {
	return Errorf(SchemaViolation, "%s %s: %s: Talos: "+format, append([]any{a.Type, a.ID, at[1:]}, args...)...).In(a.TraceID).At(at)
}

// inArtifact turns an error about a proposal into one about the artifact that holds it, at at.
func (a *Artifact) inArtifact(err *Error, at string) error {
	if err == nil {
		return nil
	}
	return a.notTalos(at+err.Pointer, "%s", err.Message)
}

var talosChars = newCharset("_-", "az", "09")

// CheckTalosNames returns VALIDATION_ERROR, with a pointer into the proposal, if the public
// Talos schemas refuse one of the names.
func (p Proposal) CheckTalosNames() *Error {
	for _, name := range [...]struct{ at, s string }{{"/tool_server", p.ToolServer}, {"/tool_name", p.ToolName}} {
		if !talosChars.all(name.s, 1, maxToolName) {
			return Errorf(ValidationError, "%.140q: want 1 to %d of a-z 0-9 _ -", name.s, maxToolName).At(name.at)
		}
	}
	return nil
}
