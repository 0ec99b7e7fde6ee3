package config

import (
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"

	"github.com/jatah-io/jatah/internal/definition"
)

// What is read of limits is read in package definition; here is what YAML makes of it.

type kind = definition.Kind

const (
	text     = definition.Text
	word     = definition.Word
	integer  = definition.Integer
	number   = definition.Number
	boolean  = definition.Boolean
	duration = definition.Duration
	list     = definition.List
)

// reader tells its problems to the loader.
func (w *walker) reader() definition.Reader {
	return definition.Reader{
		Problem: func(at definition.Value, path, text string) { w.problem(nodeOf(at), path, "%s", text) },
		Place:   func(at definition.Value) string { return w.place(nodeOf(at)).String() },
	}
}

func nodeOf(v definition.Value) ast.Node { return v.At.(ast.Node) }

// valueOf is a node and all below it.
func valueOf(n ast.Node) definition.Value {
	v := shallow(n)
	switch n := n.(type) {
	case *ast.SequenceNode:
		for _, item := range n.Values {
			v.Items = append(v.Items, valueOf(item))
		}
	case *ast.MappingNode:
		for _, m := range n.Values {
			v.Members = append(v.Members, definition.Member{Name: shallow(m.Key), Value: valueOf(m.Value)})
		}
	case *ast.MappingValueNode:
		v.Members = []definition.Member{{Name: shallow(n.Key), Value: valueOf(n.Value)}}
	}
	return v
}

// shallow is a node without what is below it.
func shallow(n ast.Node) definition.Value {
	v := definition.Value{At: n, Text: "something else"}
	switch n := n.(type) {
	case *ast.NullNode:
		v.Shape = definition.Null
	case *ast.StringNode:
		v.Shape, v.Text = definition.String, n.Value
	case *ast.LiteralNode:
		v.Shape, v.Text = definition.Lines, n.Value.Value
	case *ast.IntegerNode:
		v.Shape, v.Text = definition.Whole, n.Token.Value
	case *ast.FloatNode:
		v.Shape, v.Text = definition.Fraction, n.Token.Value
	case *ast.InfinityNode, *ast.NanNode:
		v.Shape, v.Text = definition.NotNumber, n.GetToken().Value
	case *ast.BoolNode:
		v.Shape, v.Text = definition.Bool, n.Token.Value
	case *ast.SequenceNode:
		v.Shape = definition.Sequence
	case *ast.MappingNode, *ast.MappingValueNode:
		v.Shape = definition.Group
		v.Joined, _ = unsplit(n)
	case *ast.AnchorNode, *ast.AliasNode, *ast.MergeKeyNode:
		v.Text = "an anchor or alias, which are not read: write the value out"
	case *ast.TagNode:
		v.Text = "a tag, which are not read: write the value alone"
	}
	return v
}

// unsplit undoes what the parser does to host:port in a list inside braces,
// {join: [10.0.0.1:7946]}: it takes the colon for that of a key, which by the
// YAML specification it is only when white space follows.
func unsplit(n ast.Node) (string, bool) {
	m, ok := n.(*ast.MappingNode)
	if !ok || m.IsFlowStyle || len(m.Values) != 1 {
		return "", false
	}
	key, colon, value := m.Values[0].Key.GetToken(), m.Values[0].Start, m.Values[0].Value.GetToken()
	if key.Position.Line != value.Position.Line || key.Type != token.StringType ||
		colon.Position.Column != key.Position.Column+len(key.Value) || value.Position.Column != colon.Position.Column+1 {
		return "", false
	}
	switch m.Values[0].Value.(type) {
	case *ast.StringNode, *ast.IntegerNode:
		return key.Value + ":" + value.Value, true
	}
	return "", false
}

func scalar(n ast.Node, k kind) (string, bool) { return shallow(n).Scalar(k) }

func quoteHint(n ast.Node, k kind) string { return shallow(n).Hint(k) }

func describe(n ast.Node) string { return shallow(n).Describe() }

func isMapping(n ast.Node) bool { return shallow(n).Shape == definition.Group }
