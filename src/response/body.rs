//! Text as a body of a type that is not known.

use std::any::Any;

use bytes::Bytes;
use http_body_util::Full;

/// `text` as the body `B`, if that is one of the types that can hold it. `None` for any other.
pub(super) fn filled<B: 'static>(text: String) -> Option<B> {
    let mut body: Option<B> = None;
    let mut text = Some(text);
    // Only one of these can be the type, so the text is taken once at most.
    #[cfg(feature = "axum")]
    fill(&mut body, &mut text, axum_core::body::Body::from);
    fill(&mut body, &mut text, |text| Full::new(Bytes::from(text)));
    fill(&mut body, &mut text, Bytes::from);
    fill(&mut body, &mut text, String::into_bytes);
    fill(&mut body, &mut text, |text| text);
    body
}

fn fill<T: 'static>(body: &mut dyn Any, text: &mut Option<String>, make: impl FnOnce(String) -> T) {
    if let Some(body) = body.downcast_mut::<Option<T>>() {
        *body = text.take().map(make);
    }
}

#[cfg(test)]
mod tests {
    use http_body::Body;
    use http_body_util::Empty;

    use super::*;

    fn length<B: Body + 'static>() -> Option<u64> {
        filled::<B>("text".to_owned())?.size_hint().exact()
    }

    #[test]
    fn fills_the_types_that_it_knows() {
        let text = || "text".to_owned();
        assert_eq!(filled::<String>(text()), Some(text()));
        assert_eq!(filled::<Vec<u8>>(text()), Some(text().into_bytes()));
        assert_eq!(filled::<Bytes>(text()), Some(Bytes::from("text")));
        assert_eq!(length::<Full<Bytes>>(), Some(4));
        #[cfg(feature = "axum")]
        assert_eq!(length::<axum_core::body::Body>(), Some(4));
    }

    #[test]
    fn leaves_other_types_to_themselves() {
        assert!(filled::<()>("text".to_owned()).is_none());
        assert_eq!(length::<Empty<Bytes>>(), None);
    }
}
