package query

import (
	"errors"
	"regexp"
	"regexp/syntax"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/embedded/mongoerr"
)

// Regex is a regular expression of a filter. MongoDB runs PCRE, this package
// Go's regexp: expressions that Go cannot run are refused.
type Regex struct {
	Pattern, Options string
	re               *regexp.Regexp
}

func compileRegex(pattern, options string) (Regex, error) {
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
			return Regex{}, mongoerr.NotImplemented("option x of $regex")
		default:
			return Regex{}, mongoerr.New(51108, "invalid flag in regex options: %c", o)
		}
	}
	if strings.IndexByte(pattern, 0) >= 0 {
		return Regex{}, mongoerr.New(mongoerr.BadValue, "Regular expression cannot contain an embedded null byte")
	}
	tree, err := syntax.Parse(pattern, flags)
	if err != nil {
		return Regex{}, regexError(pattern, err)
	}
	if !dollars(tree, true) {
		return Regex{}, mongoerr.NotImplemented("a regular expression with `$` before its end")
	}
	re, err := regexp.Compile(tree.String())
	if err != nil {
		return Regex{}, regexError(pattern, err)
	}
	return Regex{pattern, options, re}, nil
}

// regexError tells what is wrong in PCRE too from what only Go lacks.
func regexError(pattern string, err error) error {
	var e *syntax.Error
	if errors.As(err, &e) {
		switch e.Code {
		case syntax.ErrMissingBracket, syntax.ErrMissingParen, syntax.ErrUnexpectedParen,
			syntax.ErrTrailingBackslash, syntax.ErrInvalidCharRange, syntax.ErrMissingRepeatArgument:
			return mongoerr.New(51091, "Regular expression is invalid: %s", e.Code)
		}
	}
	return mongoerr.NotImplemented("the regular expression " + pattern)
}

// dollars gives `$` its PCRE meaning, the end of the text or before a newline
// there, where it stands last; false if one stands elsewhere.
func dollars(re *syntax.Regexp, last bool) bool {
	if re.Op == syntax.OpEndText && re.Flags&syntax.WasDollar != 0 {
		if !last {
			return false
		}
		end, err := syntax.Parse(`(?:\n?\z)`, syntax.Perl)
		*re = *end
		return err == nil
	}
	for i, sub := range re.Sub {
		tail := last && (re.Op == syntax.OpAlternate || re.Op == syntax.OpCapture ||
			re.Op == syntax.OpConcat && i == len(re.Sub)-1)
		if !dollars(sub, tail) {
			return false
		}
	}
	return true
}

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
