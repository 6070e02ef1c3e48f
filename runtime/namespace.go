package runtime

import (
	"context"

	"github.com/tgad/tgad/schemas/tga"
)

type namespaceKey struct{}

// InNamespace says, to a [Store] that keeps namespaces apart, of which one is what it is asked with ctx; "" means
// tga.DefaultNamespace. A trace that is new, and a row that belongs to no trace, say it nowhere else.
func InNamespace(ctx context.Context, namespace string) context.Context {
	return context.WithValue(ctx, namespaceKey{}, firstOf(namespace, tga.DefaultNamespace))
}

// NamespaceOf returns it; ok is false where nobody has said it.
func NamespaceOf(ctx context.Context) (namespace string, ok bool) {
	namespace, ok = ctx.Value(namespaceKey{}).(string)
	return namespace, ok
}
