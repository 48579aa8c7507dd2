//! The same count by the host, and texts to count.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufWriter, Read, Write};
use std::path::Path;

use crate::support::text::grouped;

/// Bytes of a word that count.
const MOST: usize = 64;
/// Lines of the table.
const SHOWN: usize = 20;

/// How often each word of a file occurs.
#[derive(Default)]
pub struct Counts {
    words: u64,
    by_word: HashMap<Vec<u8>, u64>,
}

impl Counts {
    /// Counts the words of a file, however large.
    pub fn of(path: &Path) -> std::io::Result<Self> {
        let mut file = File::open(path)?;
        let mut counts = Self::default();
        let mut word = Vec::new();
        let mut chunk = vec![0; 1 << 20];
        loop {
            let len = file.read(&mut chunk)?;
            for &byte in &chunk[..len] {
                match byte.is_ascii_alphanumeric() || !byte.is_ascii() {
                    true if word.len() < MOST => word.push(byte.to_ascii_lowercase()),
                    true => {}
                    false => counts.add(&mut word),
                }
            }
            if len == 0 {
                counts.add(&mut word);
                return Ok(counts);
            }
        }
    }

    fn add(&mut self, word: &mut Vec<u8>) {
        if word.is_empty() {
            return;
        }
        self.words += 1;
        match self.by_word.get_mut(word) {
            Some(count) => *count += 1,
            None => {
                self.by_word.insert(word.clone(), 1);
            }
        }
        word.clear();
    }

    /// The first way in which a printed table is not that of these counts. Words that are equally frequent may come
    /// in any order.
    pub fn difference(&self, table: &[u8]) -> Option<String> {
        let mut lines = table.split(|&byte| byte == b'\n');
        let head = lines.next().unwrap_or_default();
        let different = self.by_word.len();
        let expected = format!("{} words, {different} different", self.words);
        if head != expected.as_bytes() {
            let head = String::from_utf8_lossy(head);
            return Some(format!("`{head}` instead of `{expected}`"));
        }
        let mut counts: Vec<u64> = self.by_word.values().copied().collect();
        counts.sort_unstable_by(|a, b| b.cmp(a));
        counts.truncate(SHOWN);
        let mut lines: Vec<&[u8]> = lines.filter(|line| !line.is_empty()).collect();
        let foot = lines.pop().unwrap_or_default();
        let shown: u64 = counts.iter().sum();
        let expected = format!("{shown:>10}  words in {} lines", counts.len());
        if foot != expected.as_bytes() {
            let foot = String::from_utf8_lossy(foot);
            return Some(format!("`{foot}` instead of `{expected}`"));
        }
        if lines.len() != counts.len() {
            return Some(format!("{} lines instead of {}", lines.len(), counts.len()));
        }
        let mut seen = std::collections::HashSet::new();
        for (line, expected) in lines.into_iter().zip(counts) {
            let text = line.trim_ascii_start();
            let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
            let (count, word) = text.split_at(digits);
            let count = std::str::from_utf8(count)
                .ok()
                .and_then(|count| count.parse().ok());
            let word = word.strip_prefix(b"  ").unwrap_or_default();
            let known = self.by_word.get(word).copied();
            if count != Some(expected) || known != Some(expected) || !seen.insert(word) {
                let line = String::from_utf8_lossy(line);
                let count = grouped(expected);
                return Some(format!("`{line}` where a word with {count} belongs"));
            }
        }
        None
    }
}

/// Writes about so many bytes of made-up text: some words are frequent, most are rare, and a few are very long.
pub fn write_text(path: &Path, bytes: u64) -> std::io::Result<()> {
    const SYLLABLES: [&str; 16] = [
        "tom", "bo", "lo", "is", "land", "sand", "bar", "ré", "ma", "in", "sho", "al", "ti", "de",
        "wa", "ve",
    ];
    let mut state = 0x9E37_79B9_7F4A_7C15u64;
    let mut random = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let mut file = BufWriter::new(File::create(path)?);
    let mut written = 0;
    let mut word = String::new();
    while written < bytes {
        // Half as frequent with each two bits: some ten thousand different words in a few MB.
        let bits = (2 * random().leading_zeros()).min(16);
        let mut number = (1u64 << bits) + random() % (1 << bits);
        word.clear();
        while number > 0 {
            word.push_str(SYLLABLES[(number % 16) as usize]);
            number /= 16;
        }
        match random() % 64 {
            0 => word.make_ascii_uppercase(),
            1 if random() % 64 == 0 => word = word.repeat(30),
            _ => {}
        }
        word.push_str(match random() % 16 {
            0 => ".\n",
            1 => ", ",
            2 => " - ",
            _ => " ",
        });
        file.write_all(word.as_bytes())?;
        written += word.len() as u64;
    }
    file.flush()
}
