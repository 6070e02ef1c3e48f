package config

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
)

// Schema is the JSON Schema (draft 2020-12) of the file, for editors. It refuses every unknown key
// and every value of a wrong form. It does not have the checks of [Parse] that involve several keys.
func Schema() ([]byte, error) {
	keys := Keys()
	root := tableSchema(keys, "")
	root["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	root["title"] = "Configuration of tgad"
	raw, err := json.MarshalIndent(root, "", "  ")
	return append(raw, '\n'), err
}

type object = map[string]any

// tableSchema is the schema of the table at a path.
func tableSchema(keys []KeyDoc, path string) object {
	properties, required := object{}, []string{}
	foreign := map[string]object{} // by type: keys that do not belong to it
	for i := range keys {
		k := &keys[i]
		name, ok := strings.CutPrefix(k.Path, path+".")
		if path == "" {
			name, ok = k.Path, true
		}
		if !ok || strings.Contains(name, ".") {
			continue
		}
		properties[name] = k.schema(keys)
		if k.Needed {
			required = append(required, name)
		}
		if k.Types == nil {
			continue
		}
		for _, t := range typesIn(keys, path) {
			if !slices.Contains(k.Types, t) {
				if foreign[t] == nil {
					foreign[t] = object{}
				}
				foreign[t][name] = false
			}
		}
	}
	s := object{"type": "object", "properties": properties, "additionalProperties": false}
	if len(required) > 0 {
		s["required"] = required
	}
	var cases []object
	for _, t := range typesIn(keys, path) {
		if foreign[t] != nil {
			cases = append(cases, object{
				"if":   object{"properties": object{"type": object{"const": t}}, "required": []string{"type"}},
				"then": object{"properties": foreign[t]},
			})
		}
	}
	if cases != nil {
		s["allOf"] = cases
	}
	return s
}

// typesIn are the words of the key type of a table.
func typesIn(keys []KeyDoc, path string) []string {
	for i := range keys {
		if keys[i].Path == join(path, "type") {
			return keys[i].Words
		}
	}
	return nil
}

const (
	durationForm = `^(0|(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+)$`
	sizeForm     = `^[0-9][0-9_]* *(KiB|MiB|GiB|B)?$`
)

// schema is the schema of a key's value.
func (k *KeyDoc) schema(keys []KeyDoc) object {
	s := object{}
	text := object{"type": "string"}
	switch k.Form {
	case FormTable:
		s = tableSchema(keys, k.Path)
	case FormTables:
		s = object{"type": "array", "items": tableSchema(keys, k.Path)}
	case FormBool:
		s["type"] = "boolean"
	case FormInteger:
		s["type"] = "integer"
	case FormIntegers:
		s = object{"type": "array", "items": object{"type": "integer"}}
	case FormMap:
		s = object{"type": "object", "additionalProperties": text}
	case FormDuration:
		s["anyOf"] = []object{{"type": "string", "pattern": durationForm}, {"const": 0}}
	case FormSize:
		s["anyOf"] = []object{{"type": "string", "pattern": sizeForm}, {"type": "integer", "minimum": 0}}
	case FormString, FormStrings:
		if k.Words != nil {
			text = object{"enum": k.Words}
		}
		if s = text; k.Form == FormStrings {
			s = object{"type": "array", "items": text}
		}
	}
	s["description"] = strings.ReplaceAll(k.Text, "`", "")
	if !k.IsTable() {
		s["x-reload"] = k.Reload
	}
	if v, ok := k.value(); ok {
		s["default"] = v
	}
	return s
}

// value is the default as a JSON value; false if there is none, or only a description of one.
func (k *KeyDoc) value() (any, bool) {
	if k.Default == "" || strings.Contains(k.Default, " ") {
		return nil, false
	}
	switch k.Form {
	case FormBool:
		return k.Default == "true", true
	case FormInteger:
		n, err := strconv.Atoi(k.Default)
		return n, err == nil
	case FormIntegers:
		return json.RawMessage(k.Default), true
	}
	return k.Default, true
}
