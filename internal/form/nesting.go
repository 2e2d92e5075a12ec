package form

import "github.com/goccy/go-yaml/token"

// nesting counts how deeply the tokens of a YAML file are nested, at most a few levels too many. The parser has no bound
// of its own, and needs memory by the square of the depth.
type nesting struct {
	columns  []int // of the tokens in whose blocks it is, outside of brackets
	brackets []bracket
	within   int // the sum of what nests in the brackets
}

// bracket is an open bracket since its last comma.
type bracket struct {
	nests int  // tokens that nest without a bracket
	colon bool // a name has its value: a second one would be in it
}

// tooDeep is the first token that is nested more deeply than any value may be, nil for none.
func tooDeep(tokens token.Tokens) *token.Token {
	var n nesting
	for _, t := range tokens {
		if n.at(t) > maxDepth+8 {
			return t
		}
	}
	return nil
}

// at is the depth at the next token.
func (n *nesting) at(t *token.Token) int {
	last := len(n.brackets) - 1
	switch t.Type {
	case token.SequenceStartType, token.MappingStartType:
		n.brackets = append(n.brackets, bracket{})
	case token.SequenceEndType, token.MappingEndType:
		if last >= 0 {
			n.within -= n.brackets[last].nests
			n.brackets = n.brackets[:last]
		}
	case token.CollectEntryType:
		if last >= 0 {
			n.within -= n.brackets[last].nests
			n.brackets[last] = bracket{}
		}
	case token.CommentType:
	case token.DocumentHeaderType, token.DocumentEndType:
		*n = nesting{}
	default:
		if last < 0 {
			n.below(placeOf(t).column)
		} else if n.brackets[last].nestsIn(t.Type) {
			n.brackets[last].nests++
			n.within++
		}
	}
	return len(n.columns) + len(n.brackets) + n.within
}

// below counts a token outside of brackets: what stands to the right of something may be in it.
func (n *nesting) below(column int) {
	for len(n.columns) > 0 && n.columns[len(n.columns)-1] >= column {
		n.columns = n.columns[:len(n.columns)-1]
	}
	n.columns = append(n.columns, column)
}

func (b *bracket) nestsIn(t token.Type) bool {
	switch t {
	case token.TagType, token.AnchorType, token.MappingKeyType, token.SequenceEntryType:
		return true
	case token.MappingValueType:
		before := b.colon
		b.colon = true
		return before
	default:
		return false
	}
}
