//! Laying out plain text for a terminal of 100 columns.

/// The widest line that an example prints.
pub const WIDTH: usize = 100;

/// Breaks `text` between words into lines of at most `width` characters; a longer word stands alone.
pub fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let mut line = String::new();
    for word in text.split_whitespace() {
        if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > width {
            lines.push(std::mem::take(&mut line));
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    if !line.is_empty() || lines.is_empty() {
        lines.push(line);
    }
    lines
}

/// `head`, then `text` in the columns to the right of `indent`, wrapped there.
pub fn hanging(head: &str, indent: usize, text: &str) -> String {
    let mut out = String::new();
    let mut head = head;
    for line in wrap(text, WIDTH.saturating_sub(indent)) {
        out.push_str(format!("{head:indent$}{line}").trim_end());
        out.push('\n');
        head = "";
    }
    out
}

/// `1234567` as `1,234,567`.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}
