package query

import (
	"errors"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// Regex is a regular expression of a filter. MongoDB runs PCRE, this package
// Go's regexp: expressions that Go cannot run are refused.
type Regex struct {
	Pattern, Options string
	re               *regexp.Regexp
}

func compileRegex(pattern, options string) Regex {
	flags := syntax.Perl
	for _, o := range options {
		switch o {
		case 'i':
			flags |= syntax.FoldCase
		case 'm':
			flags &^= syntax.OneLine // `^` and `$` also at line ends
		case 's':
			flags |= syntax.DotNL
		case 'x':
			refuse("option x of $regex")
		default:
			fail(51108, "invalid flag in regex options: %c", o)
		}
	}
	need(strings.IndexByte(pattern, 0) < 0, "Regular expression cannot contain an embedded null byte")
	if vertical.MatchString(pattern) {
		refuse(`a regular expression with \v`)
	}
	tree, err := syntax.Parse(pattern, flags)
	if err == nil {
		if lacking := asPCRE(tree, true, false, spaced.MatchString(pattern)); lacking != "" {
			refuse(lacking)
		}
		var re *regexp.Regexp
		if re, err = regexp.Compile(tree.String()); err == nil {
			return Regex{pattern, options, re}
		}
	}
	var e *syntax.Error
	if errors.As(err, &e) {
		switch e.Code {
		case syntax.ErrMissingBracket, syntax.ErrMissingParen, syntax.ErrUnexpectedParen,
			syntax.ErrTrailingBackslash, syntax.ErrInvalidCharRange, syntax.ErrMissingRepeatArgument:
			fail(51091, "Regular expression is invalid: %s", e.Code) // in PCRE too
		}
	}
	refuse("the regular expression " + pattern)
	return Regex{}
}

// asPCRE gives a tree of Go's parser the meaning it has for PCRE, or says what of
// it Go has not. last: nothing stands behind re; more: something does, in any match;
// spaced: the pattern has \s or \S.
func asPCRE(re *syntax.Regexp, last, more, spaced bool) (lacking string) {
	switch {
	case re.Op == syntax.OpEndText && re.Flags&syntax.WasDollar != 0: // or before a newline there
		if !last {
			return "a regular expression with `$` before its end"
		}
		if end, err := syntax.Parse(`(?:\n?\z)`, syntax.Perl); err == nil {
			*re = *end
		}
	case re.Op == syntax.OpBeginLine && !more: // but not behind a newline that ends the text
		return "a regular expression with option m and nothing behind `^`"
	case re.Op == syntax.OpCharClass && spaced:
		re.Rune = spaces(re.Rune)
	}
	for i, sub := range re.Sub {
		tail, behind := last && (re.Op == syntax.OpAlternate || re.Op == syntax.OpCapture), more
		if re.Op == syntax.OpConcat {
			tail = last && i == len(re.Sub)-1
			behind = more || slices.ContainsFunc(re.Sub[i+1:], consumes)
		}
		if lacking = asPCRE(sub, tail, behind, spaced); lacking != "" {
			return lacking
		}
	}
	return ""
}

// consumes reports whether re matches no empty text.
func consumes(re *syntax.Regexp) bool {
	switch re.Op {
	case syntax.OpLiteral, syntax.OpCharClass, syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		return true
	case syntax.OpAlternate:
		return !slices.ContainsFunc(re.Sub, func(sub *syntax.Regexp) bool { return !consumes(sub) })
	case syntax.OpCapture, syntax.OpConcat, syntax.OpPlus:
		return slices.ContainsFunc(re.Sub, consumes)
	}
	return re.Op == syntax.OpRepeat && re.Min > 0 && consumes(re.Sub[0])
}

// spaces makes the vertical tab one of the spaces of a class, as far as one can tell
// that it means them: a class gets it that has the other spaces beside it, and one
// that has all around these, but not them, loses it.
func spaces(class []rune) []rune {
	at := func(r rune) int { // the pair that has r
		for i := 0; i < len(class); i += 2 {
			if class[i] <= r && r <= class[i+1] {
				return i
			}
		}
		return -1
	}
	tab, feed, vertical := at('\t') >= 0, at('\f') >= 0, at('\v')
	switch {
	case tab && feed && vertical < 0:
		return append(class, '\v', '\v')
	case tab || feed || vertical < 0 || at('\t'-1) < 0 || at('\r'+1) < 0:
	case class[vertical] == '\v':
		return slices.Delete(class, vertical, vertical+2)
	default:
		class[vertical+1] = '\n'
	}
	return class
}

// vertical is the escape that PCRE takes for all vertical space, Go for a tab.
var vertical = regexp.MustCompile(`^(?:[^\\]|\\[^v])*\\v`)

var spaced = regexp.MustCompile(`\\[sS]`)

func (r Regex) match(v bson.RawValue) bool {
	switch v.Type {
	case bson.TypeString, bson.TypeSymbol:
		return len(v.Value) > 4 && r.re.Match(v.Value[4:len(v.Value)-1])
	case bson.TypeRegex:
		p, o := v.Regex()
		return p == r.Pattern && o == r.Options
	}
	return false
}
