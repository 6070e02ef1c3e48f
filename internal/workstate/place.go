package workstate

import (
	"maps"
	"slices"
)

// Place says where a resource that calls take turns at is found. With it, a program that
// has none of a state's types can open the resource that a rollback must restore. A
// state's head keeps the places of the program that opened the state last.
type Place struct {
	Kind    string   `json:"kind,omitempty"`    // what opens it; "" = its own program alone can
	Path    string   `json:"path,omitempty"`    // absolute
	Aside   string   `json:"aside,omitempty"`   // directory of the resource's own, absolute
	Exclude []string `json:"exclude,omitempty"` // below Path, with slashes: left alone
}

// Kinds of place.
const (
	PlaceDirectory = "directory" // package hostdir
	PlaceSQLite    = "sqlite"    // package sqlitefile
)

// Placed is a resource that any program can open again if it knows the place.
type Placed interface{ Place() Place }

func (p Place) equal(o Place) bool {
	return p.Kind == o.Kind && p.Path == o.Path && p.Aside == o.Aside && slices.Equal(p.Exclude, o.Exclude)
}

// places returns the places of the resources that calls take turns at.
func (r *Registry) places() map[string]Place {
	out := map[string]Place{}
	for _, e := range r.entries {
		if e.snapshot == nil || e.branch != nil {
			continue
		}
		out[e.name] = Place{}
		if p, ok := e.resource.(Placed); ok {
			out[e.name] = p.Place()
		}
	}
	return out
}

// Places returns where the resources that calls take turns at lie, by their type's name
// in snapshots. One that only its own program can open has the zero Place.
func (s *State) Places() map[string]Place {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.head.Places)
}

// carriedInMemory returns the resources of a root that nobody has registered and whose
// content is in the store alone. A restore can set their content all the same.
func (s *State) carriedInMemory(nodes map[string]*Node) (names []string) {
	places := s.Places()
	for _, name := range slices.Sorted(maps.Keys(nodes)) {
		if _, outside := places[name]; !outside && s.snapshotter(name) == nil {
			names = append(names, name)
		}
	}
	return names
}
