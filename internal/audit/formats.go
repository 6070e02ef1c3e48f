package audit

import (
	"cmp"
	"encoding/json"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/tgad/tgad/internal/clip"
	"github.com/tgad/tgad/schemas/tga"
)

// Formats are the names of the formats of records.
var Formats = []string{"cloudevents", "ocsf", "cef"}

// Write writes a record on one line, in one of [Formats]; version is that of the program.
func Write(w io.Writer, format, version string, r *Record) error {
	var line []byte
	var err error
	switch format {
	case "cloudevents":
		line, err = json.Marshal(cloudEvent(r))
	case "ocsf":
		line, err = json.Marshal(ocsf(r, version))
	case "cef":
		line = cef(r, version)
	default:
		return Known(format)
	}
	if err != nil {
		return tga.Errorf(tga.ValidationError, "record %s: %w", r.ID, err)
	}
	_, err = w.Write(append(line, '\n'))
	return err
}

// Known refuses a format that is not in [Formats].
func Known(format string) error {
	if !slices.Contains(Formats, format) {
		return tga.Errorf(tga.ValidationError, "format %.40q: want one of %s", format, strings.Join(Formats, ", "))
	}
	return nil
}

type event struct {
	SpecVersion string  `json:"specversion"`
	ID          string  `json:"id"`
	Source      string  `json:"source"`
	Type        string  `json:"type"`
	Subject     string  `json:"subject"`
	Time        string  `json:"time"`
	ContentType string  `json:"datacontenttype"`
	Traceparent string  `json:"traceparent,omitempty"`
	Data        *Record `json:"data"`
}

// cloudEvent is the structured form of CloudEvents 1.0. Source and id together identify the record.
func cloudEvent(r *Record) event {
	return event{
		SpecVersion: "1.0", ID: r.ID, Source: "/tgad/" + r.Namespace, Type: "dev.tgad.call." + r.Action, Subject: r.TraceID.String(),
		Time: r.Time.String(), ContentType: "application/json", Traceparent: r.Traceparent, Data: r,
	}
}

// Severity is the severity of a record in the scale of each format.
type Severity struct{ OCSF, CEF, Syslog int }

var (
	informational = Severity{1, 3, 6}
	low           = Severity{2, 5, 5} // syslog: notice
	medium        = Severity{3, 7, 4} // syslog: warning
)

// Severity is medium for a doubt, low for a denial or failure, and informational for the rest.
func (r *Record) Severity() Severity {
	switch {
	case r.Code == string(tga.EffectInDoubt), r.Action == "note."+string(tga.NoteDoubt):
		return medium
	case r.failed():
		return low
	}
	return informational
}

func (r *Record) failed() bool {
	switch r.Outcome {
	case "", tga.Approve, tga.StatusSuccess:
		return false
	}
	return true
}

type object = map[string]any

// unknown stands for a required name that is not known.
const unknown = "unknown"

// ocsf is an event of the class API Activity (6003) of OCSF 1.3. The activity is Other, because tgad does
// not know whether a tool creates, reads, updates or deletes.
func ocsf(r *Record, version string) object {
	status, statusID := "Unknown", 0
	switch {
	case r.failed():
		status, statusID = "Failure", 2
	case r.Outcome != "":
		status, statusID = "Success", 1
	}
	// If the request of a call is erased, its caller and tool are not known. The class requires both, and a
	// receiver may refuse an event with an empty name.
	actor, api := object{}, object{"operation": cmp.Or(r.Tool, unknown)}
	if who := r.Caller; who != "" || r.Agent == "" {
		who = cmp.Or(who, unknown)
		actor["user"] = object{"name": who, "uid": who}
	}
	if r.Agent != "" {
		actor["app_uid"] = r.Agent
	}
	if r.Server != "" {
		api["service"] = object{"name": r.Server}
	}
	e := object{
		"class_uid": 6003, "class_name": "API Activity", "category_uid": 6, "category_name": "Application Activity",
		"activity_id": 99, "activity_name": r.Action, "type_uid": 600399, "type_name": "API Activity: Other",
		"severity_id": r.Severity().OCSF, "time": int64(r.Time), "status": status, "status_id": statusID,
		"metadata": object{
			"version": "1.3.0", "uid": r.ID, "correlation_uid": r.TraceID.String(),
			"product": object{"name": "tgad", "vendor_name": "tgad", "version": version},
		},
		"actor":        actor,
		"api":          api,
		"src_endpoint": object{"name": "unix socket"},
		"unmapped":     r,
	}
	if r.Code != "" {
		e["status_code"] = r.Code
	}
	return e
}

var (
	cefHeader    = strings.NewReplacer(`\`, `\\`, `|`, `\|`, "\n", " ", "\r", " ")
	cefExtension = strings.NewReplacer(`\`, `\\`, `=`, `\=`, "\n", `\n`, "\r", `\r`)
)

// cef is a line of the Common Event Format, version 0.
func cef(r *Record, version string) []byte {
	var b strings.Builder
	b.WriteString("CEF:0|tgad|tgad")
	for _, field := range []string{version, r.Action, "tgad call " + r.Action, strconv.Itoa(r.Severity().CEF)} {
		b.WriteString("|" + cefHeader.Replace(clip.Clean(field)))
	}
	b.WriteString("|")
	sep := ""
	for _, x := range [][2]string{
		{"rt", strconv.FormatInt(int64(r.Time), 10)}, {"externalId", r.ID}, {"act", r.Action}, {"outcome", r.Outcome}, {"reason", r.Code},
		{"suser", r.Caller}, {"suid", r.Agent}, {"duser", r.By}, {"destinationServiceName", r.Server},
		{"cs1 trace", r.TraceID.String()}, {"cs2 tool", r.Tool}, {"cs3 namespace", r.Namespace},
		{"cs4 state", r.State}, {"cs5 digest", r.Digest.String()}, {"cs6 subject", r.Subject},
	} {
		if x[1] == "" {
			continue
		}
		name, label, labelled := strings.Cut(x[0], " ")
		if labelled { // a custom field (cs1 to cs6), whose meaning CEF has in a label beside it
			b.WriteString(sep + name + "Label=" + label)
			sep = " "
		}
		b.WriteString(sep + name + "=" + cefExtension.Replace(clip.Clean(x[1])))
		sep = " "
	}
	return []byte(b.String())
}
