//! The messages of calls: words of 32 bits, as ranks of one program lay them out.
//!
//! ```text
//! call:    answer's tag | asks only | words of arguments | bytes of result | bytes of name | name … | arguments …
//! answer:  status | bytes | payload …
//! ```
//!
//! A caller only asking whether there is such a function gives the function's types in the place of arguments: the bytes of
//! a text, and zeros to the end of a word. The payload of an answer is the result, or the text of an error.

use crate::error::Operation;

/// The tag of calls. Answers have others.
pub(crate) const CALLS: i32 = 0;

/// A call whose rank is not known yet.
pub(crate) const CALL: Operation = Operation::new("call", None, None);

/// The longest text of an error.
pub(crate) const MOST_TEXT: usize = 2048;

/// Words in front of an answer's payload.
pub(crate) const HEAD: usize = 2;

/// How a call has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Status {
    Done = 0,
    Failed = 1,
    /// No such function, or of other types.
    Unknown = 2,
}

/// A call, as seen by the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Call {
    pub(crate) caller: i32,
    /// The tag of the answer.
    pub(crate) answer: i32,
    /// Nothing is to be done: whether the function is there.
    pub(crate) only_asks: bool,
    pub(crate) given: usize,
    pub(crate) taken: usize,
    pub(crate) name: String,
    pub(crate) arguments: Vec<u32>,
}

fn put_bytes(words: &mut Vec<u32>, bytes: &[u8]) {
    let at = words.len();
    words.resize(at + bytes.len().div_ceil(4), 0);
    let place: &mut [u8] = bytemuck::cast_slice_mut(&mut words[at..]);
    place[..bytes.len()].copy_from_slice(bytes);
}

/// A call's types, as both sides write them.
pub(crate) fn types_of<A, R>() -> String {
    use std::any::type_name;
    format!("{} -> {}", type_name::<A>(), type_name::<R>())
}

impl Call {
    /// The words in the place of arguments where a call only asks.
    pub(crate) fn asking(types: &str) -> Vec<u32> {
        let mut words = Vec::new();
        put_bytes(&mut words, types.as_bytes());
        words
    }

    /// The message.
    pub(crate) fn words(&self) -> Vec<u32> {
        let mut words = vec![
            self.answer as u32,
            u32::from(self.only_asks),
            self.given as u32,
            self.taken as u32,
            self.name.len() as u32,
        ];
        put_bytes(&mut words, self.name.as_bytes());
        words.extend(&self.arguments);
        words
    }

    /// Reads a message of `caller`; `None` for a message that no caller sends.
    pub(crate) fn read(caller: i32, words: &[u32]) -> Option<Self> {
        let (head, rest) = words.split_first_chunk::<5>()?;
        let [answer, only_asks, given, taken, name_bytes] = *head;
        let (name_bytes, given) = (name_bytes as usize, given as usize);
        let (name, arguments) = rest.split_at_checked(name_bytes.div_ceil(4))?;
        let name = bytemuck::cast_slice::<u32, u8>(name).get(..name_bytes)?;
        let is_whole = only_asks != 0 || arguments.len() == given;
        Some(Self {
            caller,
            answer: i32::try_from(answer).ok()?,
            only_asks: only_asks != 0,
            given,
            taken: taken as usize,
            name: str::from_utf8(name).ok()?.to_owned(),
            arguments: is_whole.then(|| arguments.to_vec())?,
        })
    }
}

/// The message of an answer.
pub(crate) fn answer(status: Status, payload: &[u8]) -> Vec<u32> {
    let payload = match status {
        Status::Done => payload,
        _ => &payload[..payload.len().min(MOST_TEXT)],
    };
    let mut words = vec![status as u32, payload.len() as u32];
    put_bytes(&mut words, payload);
    words
}

/// Words of the longest answer to a call with a result of so many bytes.
pub(crate) fn most_words(taken: usize) -> usize {
    HEAD + taken.max(MOST_TEXT).div_ceil(4)
}

/// Reads an answer; `None` for words that no server sends.
pub(crate) fn read_answer(words: &[u32]) -> Option<(Status, &[u8])> {
    let (&[status, bytes], payload) = words.split_first_chunk::<HEAD>()?;
    let status = match status {
        0 => Status::Done,
        1 => Status::Failed,
        2 => Status::Unknown,
        _ => return None,
    };
    let payload = bytemuck::cast_slice::<u32, u8>(payload).get(..bytes as usize)?;
    Some((status, payload))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_come_out_as_they_went_in() {
        for (name, arguments) in [("f", vec![]), ("square", vec![1, 2, 3]), ("größe", vec![9])] {
            let call = Call {
                caller: 4,
                answer: 77,
                only_asks: false,
                given: arguments.len(),
                taken: 6,
                name: name.to_owned(),
                arguments,
            };
            let words = call.words();
            assert_eq!(Call::read(4, &words), Some(call));
            assert_eq!(Call::read(4, &words[..4]), None);
        }
        assert_eq!(Call::read(0, &[1, 0, 0, 0, u32::MAX, 5]), None);
        assert_eq!(Call::read(0, &[1, 0, 7, 0, 0, 5]), None);
    }

    #[test]
    fn answers_come_out_as_they_went_in() {
        let words = answer(Status::Done, &[1, 2, 3, 4, 5]);
        assert_eq!(
            read_answer(&words),
            Some((Status::Done, &[1u8, 2, 3, 4, 5][..]))
        );
        assert!(words.len() <= most_words(5));
        let words = answer(Status::Failed, &[b'x'; 5000]);
        assert_eq!(words.len(), most_words(0));
        assert_eq!(read_answer(&words).unwrap().1.len(), MOST_TEXT);
        assert_eq!(read_answer(&[9, 0]), None);
        assert_eq!(read_answer(&[0, 5, 1]), None);
    }
}
