package runtime

import (
	"context"

	"github.com/tgad/tgad/schemas/tga"
)

type namespaceKey struct{}

// InNamespace returns a copy of ctx that tells a [Store] which keeps namespaces apart what namespace a question is
// about; "" means tga.DefaultNamespace. For a new trace, and for a row that belongs to no trace, only ctx says it.
func InNamespace(ctx context.Context, namespace string) context.Context {
	return context.WithValue(ctx, namespaceKey{}, firstOf(namespace, tga.DefaultNamespace))
}

// NamespaceOf returns the namespace of ctx; ok is false if it has none.
func NamespaceOf(ctx context.Context) (namespace string, ok bool) {
	namespace, ok = ctx.Value(namespaceKey{}).(string)
	return namespace, ok
}
