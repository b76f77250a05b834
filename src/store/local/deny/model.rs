//! All ways in which words can be written and read at once, as the memory model lets them come about.

use loom::sync::{Arc, atomic};
use loom::thread;

use self::words::Words;

#[expect(clippy::duplicate_mod, reason = "the same code with the model's atomics")]
#[path = "words.rs"]
mod words;

type Pair = Words<2>;

/// Both words, which are written to be the same.
fn read(words: &Pair) -> Option<(u64, u64)> {
    words.read(|words| Some((words.word(0), words.word(1))))
}

#[test]
fn words_of_two_writings_are_never_read_together() {
    loom::model(|| {
        let words = Arc::new(Pair::new());
        let writer = thread::spawn({
            let words = Arc::clone(&words);
            move || (1..=2).for_each(|number| words.write(&[number; 2]))
        });
        if let Some((first, second)) = read(&words) {
            assert_eq!(first, second);
        }
        writer.join().expect("it writes");
        assert_eq!(read(&words), Some((2, 2)));
    });
}

#[test]
fn what_is_read_never_goes_back() {
    loom::model(|| {
        let words = Arc::new(Pair::new());
        let reader = thread::spawn({
            let words = Arc::clone(&words);
            move || [read(&words), read(&words)]
        });
        words.write(&[1; 2]);
        let seen: Vec<_> = reader.join().expect("it reads").into_iter().flatten().collect();
        assert!(seen.is_sorted(), "{seen:?}");
    });
}
