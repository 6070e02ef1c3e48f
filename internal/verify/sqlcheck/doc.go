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
// If the query returns no row, the resource is gone. If the number of rows or a column is
// not as wanted, it has changed. The verifier cannot tell if there are more than 1000
// rows, if a wanted column is not in the result, or if neither a parameter nor a column
// compared a mark of the change. Values are compared as the text that the database
// writes. A SQLite column that is declared as a date needs a CAST to TEXT.
//
// The query is one statement that begins with SELECT, WITH, VALUES or TABLE and has no
// semicolon. Run it as a role that can only read: a read-only transaction does not keep a
// function from acting outside the database.
package sqlcheck
