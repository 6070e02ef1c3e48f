// Package postgres keeps TGA execution logs in PostgreSQL.
package postgres
