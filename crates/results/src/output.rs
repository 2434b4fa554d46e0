use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use anabranch_scenario::{LinkSample, LinkSeries, LinkState};
use anabranch_workload::Transfer;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// A result file that could not be written or read.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum OutputError {
    #[error("{}: {error}; check that the directory exists and may be written", path.display())]
    Io { path: PathBuf, error: io::Error },
    #[error("{}: {error}", path.display())]
    Csv { path: PathBuf, error: csv::Error },
    #[error("{}: {error}", path.display())]
    Json {
        path: PathBuf,
        error: serde_json::Error,
    },
    #[error("{}: {reason}", path.display())]
    Parquet { path: PathBuf, reason: String },
    #[error("plot {name}: {reason}")]
    Plot { name: String, reason: String },
}

/// What became of the file at a path.
impl OutputError {
    /// The system's word.
    pub fn io(path: &Path) -> impl Fn(io::Error) -> Self {
        move |error| Self::Io {
            path: path.into(),
            error,
        }
    }

    fn csv(path: &Path) -> impl Fn(csv::Error) -> Self {
        move |error| Self::Csv {
            path: path.into(),
            error,
        }
    }

    fn json(path: &Path) -> impl Fn(serde_json::Error) -> Self {
        move |error| Self::Json {
            path: path.into(),
            error,
        }
    }
}

pub(crate) fn create(path: &Path) -> Result<File, OutputError> {
    File::create(path).map_err(OutputError::io(path))
}

/// Writes one row per transfer under a header with the names of [`Transfer`]'s fields.
pub fn write_transfers_csv(path: &Path, transfers: &[Transfer]) -> Result<(), OutputError> {
    write_csv(path, transfers.iter())
}

/// Reads what [`write_transfers_csv`] wrote.
pub fn read_transfers_csv(path: &Path) -> Result<Vec<Transfer>, OutputError> {
    read_csv(path)
}

/// A link's name and one of its samples.
#[derive(Serialize, Deserialize)]
struct SeriesRow {
    link: String,
    t_s: f64,
    down_bytes: u64,
    up_bytes: u64,
    down_bps: f64,
    up_bps: f64,
    state: LinkState,
    flows: u64,
    #[serde(default)]
    opened: u64,
}

impl SeriesRow {
    fn of(link: &str, sample: &LinkSample) -> SeriesRow {
        SeriesRow {
            link: link.to_owned(),
            t_s: sample.t_s,
            down_bytes: sample.down_bytes,
            up_bytes: sample.up_bytes,
            down_bps: sample.down_bps,
            up_bps: sample.up_bps,
            state: sample.state,
            flows: sample.flows,
            opened: sample.opened,
        }
    }

    fn sample(&self) -> LinkSample {
        LinkSample {
            t_s: self.t_s,
            down_bytes: self.down_bytes,
            up_bytes: self.up_bytes,
            down_bps: self.down_bps,
            up_bps: self.up_bps,
            state: self.state,
            flows: self.flows,
            opened: self.opened,
        }
    }
}

/// Writes one row per link and sample.
pub fn write_series_csv(path: &Path, series: &[LinkSeries]) -> Result<(), OutputError> {
    let rows = series.iter().flat_map(|link| {
        let samples = link.samples.iter();
        samples.map(|sample| SeriesRow::of(&link.name, sample))
    });
    write_csv(path, rows)
}

/// Reads what [`write_series_csv`] wrote into the series without samples that `links` are.
pub(crate) fn read_series_csv(
    path: &Path,
    mut links: Vec<LinkSeries>,
) -> Result<Vec<LinkSeries>, OutputError> {
    for row in read_csv::<SeriesRow>(path)? {
        if let Some(link) = links.iter_mut().find(|link| link.name == row.link) {
            link.samples.push(row.sample());
        }
    }
    Ok(links)
}

fn read_csv<T: DeserializeOwned>(path: &Path) -> Result<Vec<T>, OutputError> {
    csv::Reader::from_path(path)
        .map_err(OutputError::csv(path))?
        .into_deserialize()
        .collect::<Result<_, _>>()
        .map_err(OutputError::csv(path))
}

fn write_csv(path: &Path, rows: impl Iterator<Item = impl Serialize>) -> Result<(), OutputError> {
    let mut writer = csv::Writer::from_writer(create(path)?);
    for row in rows {
        writer.serialize(row).map_err(OutputError::csv(path))?;
    }
    writer.flush().map_err(OutputError::io(path))
}

/// Writes rows of text, the header first.
pub fn write_records(path: &Path, records: Vec<Vec<String>>) -> Result<(), OutputError> {
    let mut writer = csv::Writer::from_writer(create(path)?);
    for record in records {
        writer
            .write_record(record)
            .map_err(OutputError::csv(path))?;
    }
    writer.flush().map_err(OutputError::io(path))
}

/// Writes a result such as [`crate::Summary`] or [`crate::DemoResult`] as indented JSON.
pub fn write_json(path: &Path, result: &impl Serialize) -> Result<(), OutputError> {
    serde_json::to_writer_pretty(io::BufWriter::new(create(path)?), result)
        .map_err(OutputError::json(path))
}

/// Reads what [`write_json`] wrote.
pub fn read_json<T: DeserializeOwned>(path: &Path) -> Result<T, OutputError> {
    let file = File::open(path).map_err(OutputError::io(path))?;
    serde_json::from_reader(io::BufReader::new(file)).map_err(OutputError::json(path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use anabranch_scenario::testing::transfer;
    use anabranch_workload::{Direction, Outcome, RemoteServerId};

    #[test]
    fn transfers_read_back_from_csv_as_they_were_written() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("transfers.csv");
        let mut transfers = vec![transfer(0, 0.25, 1.5), transfer(1, 0.125, 2.0)];
        transfers[1] = Transfer {
            outcome: Outcome::HttpStatus(503),
            link: None,
            setup_s: None,
            first_byte_s: None,
            group: Some("far".into()),
            server: RemoteServerId(3),
            class: Some("mail".into()),
            direction: Direction::Up,
            ..transfers[1].clone()
        };
        write_transfers_csv(&path, &transfers).unwrap();
        assert_eq!(read_transfers_csv(&path).unwrap(), transfers);
    }

    #[test]
    fn a_path_that_cannot_be_written_is_named_in_the_error() {
        let error = write_json(Path::new("/nonexistent/summary.json"), &1)
            .unwrap_err()
            .to_string();
        assert!(error.starts_with("/nonexistent/summary.json: "), "{error}");
    }
}
