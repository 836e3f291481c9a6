//! Names of the pieces of an event log.
//!
//! FORMAT: `docs/formats/object-backup.md`.

use umbel_backup::{Piece, SourceFile};
use umbel_env::ObjectName;

/// Name of the object of a piece.
pub fn piece_name(file: SourceFile, piece: &Piece) -> ObjectName {
    let (uid, SourceFile { id, version }) = (piece.uid_text(), file);
    let name = match piece.is_whole {
        true => format!("chunks/{id:08}-{version:06}-{uid}"),
        false => format!("tails/{id:08}/{:012}-{uid}", piece.from),
    };
    ObjectName::new(name).expect("digits, letters and dashes are a name")
}

/// File that the name of an object states; `None` if the name is none of a piece.
pub fn file_of_name(name: &str) -> Option<SourceFile> {
    let number = |text: &str| text.parse().ok();
    if let Some(rest) = name.strip_prefix("chunks/") {
        let mut parts = rest.split('-');
        let (id, version) = (number(parts.next()?)?, number(parts.next()?)?);
        return parts.next().map(|_| SourceFile { id, version });
    }
    let (id, _) = name.strip_prefix("tails/")?.split_once('/')?;
    Some(SourceFile { id: number(id)?, version: 0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_state_the_file_of_a_piece() {
        let tail = Piece { uid: [7; 16], is_whole: false, from: 4096, to: 9000, digest: 0 };
        let whole = Piece { is_whole: true, from: 0, ..tail };
        let file = SourceFile { id: 3, version: 0 };
        let scavenged = SourceFile { id: 12, version: 4 };
        assert_eq!(file_of_name(piece_name(scavenged, &whole).as_str()), Some(scavenged));
        assert_eq!(file_of_name(piece_name(file, &tail).as_str()), Some(file));
        for name in ["BACKUP", "chunks/x", "chunks/1-2", "tails/1", "manifests/1"] {
            assert_eq!(file_of_name(name), None, "{name}");
        }
    }
}
