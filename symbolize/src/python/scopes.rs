//! The structure of a Python source: which function, class, lambda or comprehension begins on which line, and
//! what each stands in.
//!
//! Only as much is read as this takes: tokens, indentation, brackets, and the expressions in f-strings. It is
//! the grammar up to Python 3.11, by which an f-string ends at its first quote. Where a text is something
//! else there are no scopes at all.

use std::collections::HashSet;
use std::ops::Range;

/// Brackets, lambdas and f-strings within each other: CPython allows 200 brackets (`MAXLEVEL`,
/// Parser/tokenizer.h of 3.9).
const MOST_NESTED: usize = 200;
/// Blocks within each other: CPython's `MAXINDENT`.
const MOST_BLOCKS: usize = 100;
/// Strings within expressions within strings.
const MOST_STRINGS: usize = 6;
/// Columns of a tab (`TABSIZE`).
const TAB: usize = 8;
const MODULE: u32 = 0;

/// What begins in a source.
#[derive(Debug)]
pub(super) struct Scopes<'a> {
    /// The first one is the module. Each stands after the one that it is in.
    nodes: Vec<Node<'a>>,
    /// Those that have names, by their first line.
    by_line: Vec<u32>,
    /// Scopes, and the names that they declare to be global.
    globals: HashSet<(u32, &'a [u8])>,
    /// Lines of f-strings that have comprehensions or lambdas on several lines: CPython does not always say
    /// the right one of them.
    unsure: Vec<(u32, u32)>,
}

/// What a source says of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// No such function begins there, or it has no such lines.
    Nothing,
    /// Several do, or it is not certain.
    Unsure,
    /// `__qualname__`.
    Name(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Module,
    Function,
    Class,
    Lambda,
    Comprehension,
    /// A bracket in which no comprehension was seen so far.
    Bracket,
}

#[derive(Debug)]
struct Node<'a> {
    parent: u32,
    kind: Kind,
    name: &'a [u8],
    first_line: u32,
    last_line: u32,
}

impl<'a> Scopes<'a> {
    /// `None`: this is no source that can be read.
    pub(super) fn of(text: &'a [u8]) -> Option<Scopes<'a>> {
        let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
        let mut lexer = Lexer {
            text,
            at: 0,
            end: text.len(),
            line: 1,
            last_line: 1,
            scopes: Scopes {
                nodes: Vec::new(),
                by_line: Vec::new(),
                globals: HashSet::new(),
                unsure: Vec::new(),
            },
            contexts: Vec::new(),
            brackets: 0,
            blocks: Vec::new(),
            header: None,
            decorator: None,
            strings: 0,
        };
        lexer.open(Kind::Module, b"<module>", 1)?;
        lexer.lines()?;
        let mut scopes = lexer.scopes;
        let is_named = |node: &Node<'_>| !matches!(node.kind, Kind::Bracket | Kind::Module);
        let named = (0u32..).zip(&scopes.nodes);
        let named = named.filter(|(_, node)| is_named(node));
        let mut by_line: Vec<u32> = named.map(|(id, _)| id).collect();
        by_line.sort_by_key(|id| scopes.nodes[*id as usize].first_line);
        scopes.by_line = by_line;
        Some(scopes)
    }

    /// The function of this name whose code begins on this line (of a decorated one that of the first
    /// decorator), and whose lines are all among these.
    pub(super) fn find(&self, name: &str, first_line: u32, lines: &Range<u32>) -> Found {
        if !lines.is_empty() && lines.start < first_line {
            return Found::Nothing;
        }
        let node = |id: &u32| &self.nodes[*id as usize];
        let from = self
            .by_line
            .partition_point(|id| node(id).first_line < first_line);
        let there = self.by_line[from..].iter();
        let there = there
            .take_while(|id| node(id).first_line == first_line)
            .filter(|id| node(id).name == name.as_bytes())
            .filter(|id| lines.is_empty() || lines.end - 1 <= node(id).last_line);
        let mut names = there.map(|id| self.qualified(*id));
        // CPython counts from the first line of the string, or from the one before.
        let is_unsure = |(from, to): &(u32, u32)| (from - 1..=to + 1).contains(&first_line);
        let is_anonymous = name.starts_with('<');
        let found = names.next();
        if is_anonymous && self.unsure.iter().any(is_unsure) {
            return Found::Unsure;
        }
        match found {
            None => Found::Nothing,
            Some(Some(found)) if names.all(|other| other.as_ref() == Some(&found)) => {
                Found::Name(found)
            }
            Some(_) => Found::Unsure,
        }
    }

    /// As `compiler_set_qualname` makes it (Python/compile.c).
    fn qualified(&self, id: u32) -> Option<String> {
        let mut parts = Vec::new();
        let mut at = id;
        loop {
            let node = &self.nodes[at as usize];
            parts.push(std::str::from_utf8(node.name).ok()?);
            let mut parent = node.parent;
            while self.nodes[parent as usize].kind == Kind::Bracket {
                parent = self.nodes[parent as usize].parent;
            }
            let is_declared = matches!(node.kind, Kind::Function | Kind::Class)
                && self.globals.contains(&(parent, node.name));
            match self.nodes[parent as usize].kind {
                Kind::Module => break,
                _ if is_declared => break,
                Kind::Function | Kind::Lambda => parts.push("<locals>"),
                Kind::Class | Kind::Comprehension | Kind::Bracket => {}
            }
            at = parent;
        }
        parts.reverse();
        Some(parts.join("."))
    }
}

/// What an expression stands in.
#[derive(Clone, Copy, Debug)]
enum Context {
    Bracket {
        open: u8,
        node: u32,
        /// A colon was among the elements: a dictionary.
        has_colon: bool,
        part: Part,
    },
    Lambda {
        node: u32,
        is_body: bool,
    },
}

/// How far a bracket was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// All of it, if it is no comprehension.
    Elements,
    /// Between the first `for` and its `in`.
    Targets,
    /// What it goes through: that stands in what is around.
    FirstIterable,
    Rest,
}

/// A function or class whose block is being read.
#[derive(Clone, Copy, Debug)]
struct Block {
    node: u32,
    column: usize,
}

#[derive(Debug)]
struct Lexer<'a> {
    text: &'a [u8],
    at: usize,
    /// Where to stop.
    end: usize,
    line: u32,
    /// The one with the last token.
    last_line: u32,
    scopes: Scopes<'a>,
    contexts: Vec<Context>,
    /// How many contexts are brackets.
    brackets: usize,
    blocks: Vec<Block>,
    /// The header of a function or class is being read.
    header: Option<Block>,
    /// The line of the first decorator of what follows.
    decorator: Option<u32>,
    /// Strings that are being read.
    strings: usize,
}

impl<'a> Lexer<'a> {
    fn peek(&self, further: usize) -> Option<u8> {
        let at = self.at + further;
        (at < self.end).then(|| self.text[at])
    }

    /// Takes a line's end, in each of its forms.
    fn newline(&mut self) -> bool {
        let length = match (self.peek(0), self.peek(1)) {
            (Some(b'\r'), Some(b'\n')) => 2,
            (Some(b'\r' | b'\n'), _) => 1,
            _ => return false,
        };
        self.at += length;
        self.line += 1;
        true
    }

    fn comment(&mut self) {
        while self
            .peek(0)
            .is_some_and(|byte| !matches!(byte, b'\r' | b'\n'))
        {
            self.at += 1;
        }
    }

    /// All lines of the source.
    fn lines(&mut self) -> Option<()> {
        while self.at < self.end {
            let mut column = 0;
            loop {
                match self.peek(0) {
                    Some(b' ') => column += 1,
                    Some(b'\t') => column = (column / TAB + 1) * TAB,
                    Some(b'\x0c') => column = 0,
                    _ => break,
                }
                self.at += 1;
            }
            match self.peek(0) {
                Some(b'#') => self.comment(),
                Some(b'\r' | b'\n') | None => {}
                Some(_) => self.statement(column)?,
            }
            if !self.newline() && self.at < self.end {
                return None;
            }
        }
        self.leave(0);
        Some(())
    }

    /// Ends the blocks that stand at this column or further right.
    fn leave(&mut self, column: usize) {
        while let Some(block) = self.blocks.pop_if(|block| block.column >= column) {
            self.close_node(block.node, self.last_line);
        }
    }

    /// A line that may go on over several, up to its end.
    fn statement(&mut self, column: usize) -> Option<()> {
        self.leave(column);
        let (at, line) = (self.at, self.line);
        let is_decorator = self.peek(0) == Some(b'@');
        let mut word = self.take_word();
        if word == b"async" {
            self.gap()?;
            word = self.take_word();
        }
        let kind = match word {
            b"def" => Some(Kind::Function),
            b"class" => Some(Kind::Class),
            _ => None,
        };
        if let Some(kind) = kind {
            self.gap()?;
            let name = self.take_word();
            if name.is_empty() || self.blocks.len() == MOST_BLOCKS {
                return None;
            }
            let first_line = self.decorator.unwrap_or(line);
            let node = self.open(kind, name, first_line)?;
            self.header = Some(Block { node, column });
        } else {
            (self.at, self.line) = (at, line);
        }
        match is_decorator {
            true => _ = self.decorator.get_or_insert(line),
            false => self.decorator = None,
        }
        self.tokens()?;
        self.end_lambdas(true);
        // A header ends with a colon.
        (self.contexts.is_empty() && self.header.is_none()).then_some(())
    }

    /// All tokens up to the end of the line, or of what is to be read.
    fn tokens(&mut self) -> Option<()> {
        while let Some(byte) = self.peek(0) {
            match byte {
                b' ' | b'\t' | b'\x0c' | b'\\' => {
                    self.gap()?;
                    continue;
                }
                b'#' => {
                    self.comment();
                    continue;
                }
                b'\r' | b'\n' if self.brackets == 0 => break,
                b'\r' | b'\n' => {
                    self.newline();
                    continue;
                }
                b'"' | b'\'' => self.string(Prefix::default())?,
                b'0'..=b'9' => self.number(),
                b'a'..=b'z' | b'A'..=b'Z' | b'_' | 0x80.. => {
                    let word = self.take_word();
                    let is_string = matches!(self.peek(0), Some(b'"' | b'\''));
                    match Prefix::of(word).filter(|_| is_string) {
                        Some(prefix) => self.string(prefix)?,
                        None => self.keyword(word)?,
                    }
                }
                b'(' | b'[' | b'{' => {
                    self.at += 1;
                    self.open_bracket(byte)?;
                }
                b')' | b']' | b'}' => {
                    self.at += 1;
                    self.end_lambdas(true);
                    let open = self.close_bracket()?;
                    (matches!((open, byte), (b'(', b')') | (b'[', b']') | (b'{', b'}'))
                        .then_some(()))?;
                }
                b',' => {
                    self.at += 1;
                    self.end_lambdas(false);
                }
                b';' => {
                    self.at += 1;
                    self.end_lambdas(true);
                    (self.brackets == 0).then_some(())?;
                }
                b':' if self.peek(1) == Some(b'=') => self.at += 2,
                b':' => {
                    self.at += 1;
                    self.colon();
                }
                b'!' if self.peek(1) != Some(b'=') => return None,
                0x21..=0x7e if !matches!(byte, b'$' | b'?' | b'`') => self.at += 1,
                _ => return None,
            }
            self.last_line = self.line;
        }
        Some(())
    }

    /// Takes the identifier or keyword that comes.
    fn take_word(&mut self) -> &'a [u8] {
        let is_of_word = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_' || *byte >= 0x80;
        let rest = &self.text[self.at..self.end];
        let length = rest.iter().take_while(|byte| is_of_word(byte)).count();
        self.at += length;
        &rest[..length]
    }

    /// Takes what stands between two tokens of a line.
    fn gap(&mut self) -> Option<()> {
        loop {
            match self.peek(0) {
                Some(b' ' | b'\t' | b'\x0c') => self.at += 1,
                Some(b'\\') => {
                    self.at += 1;
                    self.newline().then_some(())?;
                }
                _ => return Some(()),
            }
        }
    }

    /// Takes a number. A keyword may follow at once: `1if x else 2`.
    fn number(&mut self) {
        let is_based = self.peek(0) == Some(b'0')
            && matches!(self.peek(1), Some(b'x' | b'X' | b'o' | b'O' | b'b' | b'B'));
        if is_based {
            self.at += 2;
            while matches!(self.peek(0), Some(byte) if byte.is_ascii_hexdigit() || byte == b'_') {
                self.at += 1;
            }
            return;
        }
        loop {
            let is_exponent = matches!(self.peek(0), Some(b'e' | b'E'))
                && matches!(self.peek(1), Some(b'0'..=b'9' | b'+' | b'-'));
            match self.peek(0) {
                Some(b'0'..=b'9' | b'_' | b'.') => self.at += 1,
                _ if is_exponent => self.at += 2,
                Some(b'j' | b'J') => {
                    self.at += 1;
                    return;
                }
                _ => return,
            }
        }
    }

    fn keyword(&mut self, word: &[u8]) -> Option<()> {
        match word {
            b"lambda" => {
                let node = self.open(Kind::Lambda, b"<lambda>", self.line)?;
                let is_body = false;
                self.contexts.push(Context::Lambda { node, is_body });
            }
            b"as" | b"from" => self.end_lambdas(false),
            b"for" => {
                self.end_lambdas(false);
                match self.contexts.last_mut() {
                    Some(Context::Bracket {
                        open,
                        node,
                        has_colon,
                        part,
                    }) => match part {
                        Part::Elements => {
                            *part = Part::Targets;
                            let node = &mut self.scopes.nodes[*node as usize];
                            node.kind = Kind::Comprehension;
                            node.name = match (*open, *has_colon) {
                                (b'(', _) => b"<genexpr>",
                                (b'[', _) => b"<listcomp>",
                                (_, true) => b"<dictcomp>",
                                (_, false) => b"<setcomp>",
                            };
                        }
                        Part::Targets => return None,
                        Part::FirstIterable | Part::Rest => *part = Part::Rest,
                    },
                    Some(Context::Lambda { .. }) => return None,
                    None => {}
                }
            }
            b"in" | b"if" => {
                if let Some(Context::Bracket { part, .. }) = self.contexts.last_mut() {
                    *part = match (word, *part) {
                        (b"in", Part::Targets) => Part::FirstIterable,
                        (b"if", Part::FirstIterable) => Part::Rest,
                        (_, part) => part,
                    };
                }
            }
            b"global" if self.contexts.is_empty() => {
                let scope = self.around();
                loop {
                    self.gap()?;
                    let name = self.take_word();
                    self.scopes.globals.insert((scope, name));
                    self.gap()?;
                    if self.peek(0) != Some(b',') {
                        break;
                    }
                    self.at += 1;
                }
            }
            _ => {}
        }
        Some(())
    }

    /// A colon ends the parameters of a lambda, a key of a dictionary, a header.
    fn colon(&mut self) {
        self.end_lambdas(false);
        match self.contexts.last_mut() {
            Some(Context::Lambda { is_body, .. }) => *is_body = true,
            Some(Context::Bracket { has_colon, .. }) => *has_colon = true,
            None => self.blocks.extend(self.header.take()),
        }
    }

    /// Ends the lambdas that are read up to here, or only those whose bodies are.
    fn end_lambdas(&mut self, all: bool) {
        let ends = |context: &mut Context| match context {
            Context::Lambda { is_body, .. } => *is_body || all,
            Context::Bracket { .. } => false,
        };
        while let Some(Context::Lambda { node, .. }) = self.contexts.pop_if(ends) {
            self.close_node(node, self.line);
        }
    }

    fn open_bracket(&mut self, open: u8) -> Option<()> {
        let node = self.open(Kind::Bracket, b"", self.line)?;
        self.contexts.push(Context::Bracket {
            open,
            node,
            has_colon: false,
            part: Part::Elements,
        });
        self.brackets += 1;
        Some(())
    }

    /// Gives how the bracket opened that ends.
    fn close_bracket(&mut self) -> Option<u8> {
        let Some(Context::Bracket { open, node, .. }) = self.contexts.pop() else {
            return None;
        };
        self.brackets -= 1;
        self.close_node(node, self.line);
        let nodes = &mut self.scopes.nodes;
        // Most have nothing inside that has a name.
        if nodes.len() == node as usize + 1 {
            nodes.pop_if(|node| node.kind == Kind::Bracket);
        }
        Some(open)
    }

    /// What a scope that begins here stands in.
    fn around(&self) -> u32 {
        let parent = |node: u32| self.scopes.nodes[node as usize].parent;
        match self.contexts.last() {
            Some(Context::Lambda { node, is_body }) if *is_body => *node,
            Some(Context::Bracket { node, part, .. }) if *part != Part::FirstIterable => *node,
            Some(Context::Lambda { node, .. } | Context::Bracket { node, .. }) => parent(*node),
            None => self.blocks.last().map_or(MODULE, |block| block.node),
        }
    }

    fn open(&mut self, kind: Kind, name: &'a [u8], first_line: u32) -> Option<u32> {
        if self.contexts.len() >= MOST_NESTED {
            return None;
        }
        let id = u32::try_from(self.scopes.nodes.len()).ok()?;
        let parent = match kind {
            Kind::Module => MODULE,
            _ => self.around(),
        };
        self.scopes.nodes.push(Node {
            parent,
            kind,
            name,
            first_line,
            last_line: first_line,
        });
        Some(id)
    }

    fn close_node(&mut self, node: u32, last_line: u32) {
        let node = &mut self.scopes.nodes[node as usize];
        node.last_line = last_line;
    }

    /// Takes a string, whose quote comes.
    fn string(&mut self, prefix: Prefix) -> Option<()> {
        let quote = self.peek(0)?;
        let is_triple = [1, 2].iter().all(|at| self.peek(*at) == Some(quote));
        let length = if is_triple { 3 } else { 1 };
        self.at += length;
        let (begin, first_line) = (self.at, self.line);
        loop {
            if self.newline() {
                is_triple.then_some(())?;
                continue;
            }
            let byte = self.peek(0)?;
            let is_end = (0..length).all(|at| self.peek(at) == Some(quote));
            match byte {
                _ if is_end => break,
                b'\\' => {
                    self.at += 1;
                    if !self.newline() {
                        self.peek(0)?;
                        self.at += 1;
                    }
                }
                _ => self.at += 1,
            }
        }
        let after = (self.at + length, self.line, self.end);
        if prefix.is_formatted {
            if self.strings == MOST_STRINGS {
                return None;
            }
            self.strings += 1;
            let nodes = self.scopes.nodes.len();
            self.end = self.at;
            (self.at, self.line) = (begin, first_line);
            self.formatted(prefix, 0)?;
            self.strings -= 1;
            let (_, last_line, _) = after;
            if self.scopes.nodes.len() > nodes && last_line > first_line {
                self.scopes.unsure.push((first_line, last_line));
            }
        }
        (self.at, self.line, self.end) = after;
        Some(())
    }

    /// The text of an f-string, or of a format in it.
    fn formatted(&mut self, prefix: Prefix, depth: usize) -> Option<()> {
        const MOST_FORMATS: usize = 2;

        (depth <= MOST_FORMATS).then_some(())?;
        loop {
            let is_twice = depth == 0 && self.peek(0) == self.peek(1);
            match self.peek(0) {
                None => return (depth == 0).then_some(()),
                Some(b'{' | b'}') if is_twice => self.at += 2,
                Some(b'{') => {
                    self.at += 1;
                    self.replacement(prefix, depth)?;
                }
                Some(b'}') => return (depth > 0).then_some(()),
                Some(b'\\') if !prefix.is_raw => {
                    // `\N{DIGIT ONE}` is a letter.
                    let is_named = (self.peek(1), self.peek(2)) == (Some(b'N'), Some(b'{'));
                    self.at += 1;
                    if self.peek(0) == Some(b'\\') {
                        self.at += 1;
                    }
                    while is_named && self.peek(0)? != b'}' {
                        self.at += 1;
                    }
                    self.at += usize::from(is_named);
                }
                Some(_) => {
                    if !self.newline() {
                        self.at += 1;
                    }
                }
            }
        }
    }

    /// What stands in braces in an f-string: an expression, how it is converted, its format. CPython compiles
    /// the expression in parentheses.
    fn replacement(&mut self, prefix: Prefix, depth: usize) -> Option<()> {
        let end = self.end;
        self.end = self.end_of_expression()?;
        let contexts = self.contexts.len();
        self.open_bracket(b'(')?;
        self.tokens()?;
        self.end_lambdas(true);
        self.close_bracket()?;
        (self.contexts.len() == contexts).then_some(())?;
        self.end = end;
        if self.peek(0)? == b'!' {
            self.at += 1;
            self.take_word();
        }
        if self.peek(0)? == b':' {
            self.at += 1;
            self.formatted(prefix, depth + 1)?;
        }
        let is_end = self.peek(0)? == b'}';
        self.at += 1;
        is_end.then_some(())
    }

    /// Where the expression ends that begins here, in an f-string.
    fn end_of_expression(&self) -> Option<usize> {
        let text = &self.text[..self.end];
        let mut at = self.at;
        let mut depth = 0usize;
        loop {
            let byte = *text.get(at)?;
            match byte {
                b'\\' | b'#' => return None,
                b'"' | b'\'' => {
                    let rest = &text[at..];
                    let is_triple = rest.len() >= 3 && rest[..3].iter().all(|b| *b == byte);
                    let quotes = &rest[..if is_triple { 3 } else { 1 }];
                    at += quotes.len();
                    while !text.get(at..)?.starts_with(quotes) {
                        text.get(at)?;
                        at += 1;
                    }
                    at += quotes.len();
                    continue;
                }
                b'!' if text.get(at + 1) == Some(&b'=') => at += 1,
                b'}' | b':' | b'!' if depth == 0 => return Some(at),
                b'(' | b'[' | b'{' => depth += 1,
                b')' | b']' | b'}' => depth = depth.checked_sub(1)?,
                _ => {}
            }
            at += 1;
        }
    }
}

/// The letters before a string.
#[derive(Clone, Copy, Debug, Default)]
struct Prefix {
    is_formatted: bool,
    is_raw: bool,
}

impl Prefix {
    fn of(word: &[u8]) -> Option<Prefix> {
        let has = |letter: u8| word.iter().any(|byte| byte.eq_ignore_ascii_case(&letter));
        let is_known = |byte: &u8| b"rbuf".contains(&byte.to_ascii_lowercase());
        (word.len() <= 2 && word.iter().all(is_known)).then(|| Prefix {
            is_formatted: has(b'f'),
            is_raw: has(b'r'),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = r##"# A source.
class Shop(Base, key=lambda: 0):
    "A string with a def inside: "
    """
def no(): pass
    """
    prices = [price for price in (f(x) for x in y)]

    @cached(lambda shop: shop)
    # Of it.
    @other
    async def run(self, order=lambda: 1, *, many: {1: 2} = 3) -> "x":
        def helper(): return lambda a=lambda: 1: {a: b for a in b}
        global declared
        def declared():
            class Inner: pass
        return f"{helper()!r:>{width}} {', '.join(n for n in names)} {{no}}" \
            "x"

	# A comment of another column.
    class Till:
        def __init__(self): self.x = 1; self.y = lambda: (yield)
w = lambda: lambda: 0
if x: y = lambda a, b: a; z = lambda c: c
v = 0
text = f"""{
    [1for a in b]}"""
"##;

    fn find(scopes: &Scopes<'_>, name: &str, line: u32, lines: Range<u32>) -> String {
        match scopes.find(name, line, &lines) {
            Found::Name(name) => name,
            Found::Unsure => "unsure".to_owned(),
            Found::Nothing => "nothing".to_owned(),
        }
    }

    #[test]
    fn scopes_have_the_names_that_python_gives_them() {
        let scopes = Scopes::of(SOURCE.as_bytes()).expect("a source");
        for (name, line, expected) in [
            ("Shop", 2, "Shop"),
            ("<lambda>", 2, "<lambda>"),
            ("<listcomp>", 7, "Shop.<listcomp>"),
            ("<genexpr>", 7, "Shop.<genexpr>"),
            ("<lambda>", 9, "Shop.<lambda>"),
            ("run", 9, "Shop.run"),
            ("run", 12, "nothing"),
            ("<lambda>", 12, "Shop.<lambda>"),
            ("helper", 13, "Shop.run.<locals>.helper"),
            ("<lambda>", 13, "Shop.run.<locals>.helper.<locals>.<lambda>"),
            (
                "<dictcomp>",
                13,
                "Shop.run.<locals>.helper.<locals>.<lambda>.<locals>.<dictcomp>",
            ),
            ("declared", 15, "declared"),
            ("Inner", 16, "declared.<locals>.Inner"),
            ("<genexpr>", 17, "Shop.run.<locals>.<genexpr>"),
            ("__init__", 22, "Shop.Till.__init__"),
            ("<lambda>", 22, "Shop.Till.__init__.<locals>.<lambda>"),
            ("<lambda>", 23, "unsure"),
            ("<lambda>", 24, "<lambda>"),
            ("<listcomp>", 27, "unsure"),
            ("no", 5, "nothing"),
        ] {
            assert_eq!(find(&scopes, name, line, 0..0), expected, "{name}:{line}");
        }
    }

    #[test]
    fn a_function_has_no_lines_of_others() {
        let scopes = Scopes::of(SOURCE.as_bytes()).expect("a source");
        let run = |lines| find(&scopes, "run", 9, lines);
        assert_eq!(run(12..19), "Shop.run");
        assert_eq!(run(12..23), "nothing");
        assert_eq!(run(8..19), "nothing");
        // Of two on a line only one has both lines.
        let scopes = Scopes::of(b"a = [[x for x in y] for y in [\n1]]\n").expect("a source");
        let of = |lines| find(&scopes, "<listcomp>", 1, lines);
        assert_eq!((of(1..2), of(1..3)), ("unsure".into(), "<listcomp>".into()));
    }

    #[test]
    fn what_is_no_source_has_no_scopes() {
        let deep = "(".repeat(100_000);
        let lambdas = "lambda: ".repeat(100_000);
        let formats = "f'{x:".repeat(1000);
        for text in [
            "x = (",
            "x = ]",
            "x = '",
            "def f()",
            "def",
            "print `x`",
            "x = \0",
            "f'{x'",
            "f'{(}'",
            "f\"{x[\"a\"]}\"",
            &deep,
            &lambdas,
            &formats,
        ] {
            assert!(Scopes::of(text.as_bytes()).is_none(), "{text:.20}");
        }
        assert!(Scopes::of(b"").is_some());
        assert!(Scopes::of(b"\xef\xbb\xbfx = 1").is_some());
    }

    #[test]
    fn no_bytes_are_too_odd() {
        let source = SOURCE.as_bytes();
        let odd = b"\"'\\{}()[]:\n\r\t \x00\xff#fl";
        for at in 0..source.len() {
            let _ = Scopes::of(&source[..at]);
            let _ = Scopes::of(&source[at..]);
            for byte in odd {
                let mut changed = source.to_vec();
                changed[at] = *byte;
                if let Some(scopes) = Scopes::of(&changed) {
                    let _ = find(&scopes, "<lambda>", 13, 13..14);
                    let _ = find(&scopes, "run", u32::MAX, 0..u32::MAX);
                }
            }
        }
    }
}
