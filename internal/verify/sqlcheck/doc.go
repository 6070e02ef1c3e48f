// Package sqlcheck judges the rows of a read-only query. It has no driver: packages
// pgcheck and sqlitecheck run the query, and a program may bring a database of its
// own as a [Query].
//
//	[[verifier]]
//	resource_type = "order"
//	type          = "postgres"            # or sqlite
//	query         = "SELECT status, version FROM orders WHERE id = $1"
//	params        = ["resource_id"]       # members of the change, in order; "version?" = NULL where it has none
//	rows          = 0                     # exactly so many; 0 = one or more
//	ignore        = []                    # of "etag" and "version"
//	timeout, tries, delay, max_delay, settle, settle_every as in package httpcheck
//	  [[verifier.column]]                 # each must hold in every row
//	  name   = "version"
//	  field  = "version"                  # or equals = "paid", or null = true
//
// No row is gone. Another number of rows than wanted, or a column that is not as wanted,
// is changed. A query of more than 1000 rows, a column that is not among the
// result's, and a mark of the change that neither a parameter nor a column compared,
// cannot be told. Values are compared as the text that the database writes: SQLite's
// dates in a column declared as one need a CAST to TEXT.
//
// The query is one statement that begins with SELECT, WITH, VALUES or TABLE and has no
// semicolon. What it runs as should be a role that can only read: a transaction that is
// read-only does not keep a function from acting outside the database.
package sqlcheck
