//! Round trips of a scavenged chunk's file, and detection of every change in it.

use std::path::Path;

use umbel_sim::Sim;

use super::*;
use crate::types::event::{EventId, NewEvent};

const START: u64 = 1 << 20;
const RANGE: (u64, u64) = (START, START + (1 << 16));

/// A scavenged chunk of 40 events, every third of which was removed.
fn example() -> (Vec<u8>, ScavengedFile) {
    let mut packer = ScavengedChunkWriter::new(7, START, 2, 1);
    let data = [b'x'; 200];
    for number in 0..40_u64 {
        let kind = if number % 2 == 0 { "Opened" } else { "Closed" };
        let event = NewEvent::json(EventId::from_random([number as u8; 16]), kind, &data);
        let (place, position) = (FrameLocation { chunk: 7, offset: 96 }, START + 96 + number * 400);
        let (created, ends_append) = (number, true);
        let stamp = FrameMeta {
            location: place,
            position,
            back: 0,
            revision: number % 4,
            created,
            ends_append,
        };
        let mut bytes = Vec::new();
        event_format::encode(&mut bytes, "cart-1", &event, &stamp);
        let frame = Frame::decode(&bytes, place).expect("just written");
        match number % 3 {
            1 => packer.remove_event(&frame),
            _ => packer.keep_event(&frame, number == 39),
        }
    }
    packer.finish()
}

fn file(bytes: &[u8]) -> std::sync::Arc<dyn File> {
    let env = Sim::new(1).env();
    let file = env.files.create(Path::new("/chunk")).expect("a file");
    file.write_all_at(bytes, 0).expect("written");
    file
}

fn read(bytes: &[u8]) -> Result<(PositionMap, RemovedEvents)> {
    let file = file(bytes);
    let points = read_position_map(&*file, 7, 2, RANGE)?;
    let gaps = read_removed_events(&*file, 7, &points, RANGE)?;
    Ok((points, gaps))
}

#[test]
fn points_and_gaps_round_trip() {
    let (bytes, scavenged) = example();
    let (points, gaps) = read(&bytes).expect("just written");
    assert_eq!((scavenged.first_event, scavenged.last_event), (96, 96 + 39 * 400));
    assert_eq!(scavenged.file_bytes, bytes.len() as u64);
    verify_file(&*file(&bytes), 7, &scavenged).expect("just written");
    assert!(points.entries.len() > 2, "{points:?}");
    let mut offset = HEADER_BYTES;
    let mut last = 0;
    while offset < points.frames_end {
        let frame = Frame::decode(&bytes[offset as usize..], FrameLocation { chunk: 7, offset });
        let frame = frame.expect("a frame");
        assert_eq!(u64::from(frame.meta.back), if last == 0 { 0 } else { offset - last });
        let before = points.offset_before(frame.meta.position);
        assert!(before <= offset && offset - before <= POSITION_SPACING_BYTES + 400);
        (last, offset) = (offset, offset + frame.bytes as u64);
    }
    assert_eq!(gaps.runs.len(), 13);
    let total = |count: fn(&RemovedRun) -> u64| gaps.runs.iter().map(count).sum::<u64>();
    assert_eq!((total(|run| run.events), total(|run| run.streams)), (13, 3));
    assert_eq!(total(|run| run.categories.values().sum()), 13);
    assert_eq!(gaps.names, ["cart", "Closed", "Opened"]);
}

#[test]
fn removed_runs_of_an_earlier_file_are_kept() {
    let (bytes, _) = example();
    let (_, gaps) = read(&bytes).expect("just written");
    let mut packer = ScavengedChunkWriter::new(7, START, 3, 2);
    gaps.runs.iter().for_each(|run| packer.copy_removed_run(&gaps, run));
    let (bytes, scavenged) = packer.finish();
    assert_eq!((scavenged.first_event, scavenged.last_event), (0, 0));
    let file = file(&bytes);
    let points = read_position_map(&*file, 7, 3, RANGE).expect("just written");
    assert_eq!(points.frames_end, HEADER_BYTES);
    let joined = read_removed_events(&*file, 7, &points, RANGE).expect("just written");
    assert_eq!(joined.runs.len(), 1, "without an event between them they are one");
    assert_eq!((joined.runs[0].events, joined.runs[0].streams), (13, 3));
}

#[test]
fn changed_bits_and_other_files_are_rejected() {
    let (bytes, scavenged) = example();
    let frames_end = read(&bytes).expect("just written").0.frames_end as usize;
    for bit in (0..64 * 8).chain(frames_end * 8..bytes.len() * 8) {
        let mut changed = bytes.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        assert!(read(&changed).is_err(), "bit {bit}");
    }
    for byte in 0..bytes.len() {
        let mut changed = bytes.clone();
        changed[byte] ^= 16;
        assert!(verify_file(&*file(&changed), 7, &scavenged).is_err(), "byte {byte}");
    }
    for len in (0..bytes.len()).step_by(7) {
        assert!(read(&bytes[..len]).is_err(), "{len} bytes");
    }
    let file = file(&bytes);
    assert!(read_position_map(&*file, 8, 2, RANGE).is_err(), "another chunk");
    assert!(read_position_map(&*file, 7, 3, RANGE).is_err(), "another version");
    assert!(read_position_map(&*file, 7, 2, (0, RANGE.1)).is_err(), "another start");
}
