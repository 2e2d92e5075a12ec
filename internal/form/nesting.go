package form

import (
	"fmt"

	"github.com/goccy/go-yaml/token"
)

// nesting counts how deeply the tokens of a YAML file are nested, at most a few levels too many. The parser has no bound
// of its own, and needs memory by the square of the depth.
type nesting struct {
	blocks   []block // of the tokens in whose blocks it is, outside of brackets
	line     int     // of the last of these tokens
	first    int     // the block of the first token on that line, but for the dashes of lists
	named    bool    // that line has a name
	brackets []bracket
	within   int // the sum of what nests in the brackets
	names    int // of the block with the most
}

// block is what begins at a column.
type block struct{ column, names int }

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

// maxNames bounds the names of a block. For each, the parser copies those before it.
const maxNames = 2000

// tooWide is where the one document of a text would take the parser much time, and why; nil for nowhere. A third document
// is enough to say that there is more than one.
func tooWide(tokens token.Tokens) (at *token.Token, why string) {
	var n nesting
	separators := 0
	for _, t := range tokens {
		n.at(t)
		if t.Type == token.DocumentHeaderType || t.Type == token.DocumentEndType {
			separators++
		}
		switch {
		case separators > 2:
			return t, "another document begins here; want one"
		case n.names > maxNames:
			return t, fmt.Sprintf("a block has more than %d names; write them between { and }", maxNames)
		}
	}
	return nil, ""
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
			n.below(t)
		} else if n.brackets[last].nestsIn(t.Type) {
			n.brackets[last].nests++
			n.within++
		}
	}
	return len(n.blocks) + len(n.brackets) + n.within
}

// below counts a token outside of brackets: what stands to the right of something may be in it.
func (n *nesting) below(t *token.Token) {
	at := placeOf(t)
	for len(n.blocks) > 0 && n.blocks[len(n.blocks)-1].column > at.column {
		n.blocks = n.blocks[:len(n.blocks)-1]
	}
	last := len(n.blocks) - 1
	begins := last < 0 || n.blocks[last].column < at.column
	if at.line != n.line && t.Type != token.SequenceEntryType {
		if n.line, n.first, n.named = at.line, last, false; begins {
			n.first++
		}
	}
	if t.Type == token.MappingValueType && !n.named && n.first <= last { // of a name, which may begin with an anchor or a tag
		n.named = true
		n.blocks[n.first].names++
		n.names = max(n.names, n.blocks[n.first].names)
	}
	if begins {
		n.blocks = append(n.blocks, block{column: at.column})
	}
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
