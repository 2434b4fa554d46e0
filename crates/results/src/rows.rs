//! Transfers as Parquet: one row each, columns named as in the CSV.

use std::path::Path;
use std::sync::Arc;

use anabranch_workload::{Direction, Outcome, RemoteServerId, Transfer, TransferId, UserId};
use parquet::basic::Compression;
use parquet::column::writer::ColumnWriter;
use parquet::data_type::ByteArray;
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::record::{Field, Row};
use parquet::schema::parser::parse_message_type;

use crate::OutputError;
use crate::output::create;

/// Rows that are written, and held in memory, at a time.
const ROW_GROUP: usize = 1 << 18;

/// A column: its type in the file, and its value of a transfer.
enum Column {
    U32(fn(&Transfer) -> u32),
    U64(fn(&Transfer) -> u64),
    F64(fn(&Transfer) -> f64),
    MaybeF64(fn(&Transfer) -> Option<f64>),
    Text(fn(&Transfer) -> String),
    MaybeText(fn(&Transfer) -> Option<&str>),
}

const COLUMNS: [(&str, Column); 18] = [
    ("id", Column::U64(|t| t.id.0)),
    ("user", Column::U32(|t| t.user.0)),
    ("group", Column::MaybeText(|t| t.group.as_deref())),
    ("source", Column::Text(|t| t.source.to_string())),
    ("server", Column::U32(|t| t.server.0)),
    ("class", Column::MaybeText(|t| t.class.as_deref())),
    ("direction", Column::Text(|t| t.direction.name().to_owned())),
    ("round", Column::U32(|t| t.round)),
    ("planned_start_s", Column::F64(|t| t.planned_start_s)),
    ("start_s", Column::F64(|t| t.start_s)),
    ("setup_s", Column::MaybeF64(|t| t.setup_s)),
    ("first_byte_s", Column::MaybeF64(|t| t.first_byte_s)),
    ("duration_s", Column::F64(|t| t.duration_s)),
    ("bytes_asked", Column::U64(|t| t.bytes_asked)),
    ("bytes", Column::U64(|t| t.bytes)),
    ("link", Column::MaybeText(|t| t.link.as_deref())),
    ("outcome", Column::Text(|t| t.outcome.to_string())),
    ("syn_retransmits", Column::U32(|t| t.syn_retransmits)),
];

/// Writes one row per transfer, compressed with Snappy.
pub fn write_transfers_parquet(path: &Path, transfers: &[Transfer]) -> Result<(), OutputError> {
    let file = create(path)?;
    write(file, transfers).map_err(|error| at(path, &error))
}

/// Reads what [`write_transfers_parquet`] wrote.
pub fn read_transfers_parquet(path: &Path) -> Result<Vec<Transfer>, OutputError> {
    read(path).map_err(|error| at(path, &error))
}

fn at(path: &Path, error: &ParquetError) -> OutputError {
    OutputError::Parquet {
        path: path.into(),
        reason: error.to_string(),
    }
}

fn schema() -> String {
    let column = |(name, column): &(&str, Column)| {
        let (kind, annotation) = match column {
            Column::U32(_) => ("required int32", " (integer(32,false))"),
            Column::U64(_) => ("required int64", " (integer(64,false))"),
            Column::F64(_) => ("required double", ""),
            Column::MaybeF64(_) => ("optional double", ""),
            Column::Text(_) => ("required binary", " (string)"),
            Column::MaybeText(_) => ("optional binary", " (string)"),
        };
        format!("{kind} {name}{annotation};")
    };
    let columns: Vec<_> = COLUMNS.iter().map(column).collect();
    format!("message transfer {{ {} }}", columns.join(" "))
}

fn write(file: std::fs::File, transfers: &[Transfer]) -> Result<(), ParquetError> {
    let schema = Arc::new(parse_message_type(&schema())?);
    let properties = WriterProperties::builder()
        .set_compression(Compression::SNAPPY)
        .set_created_by(concat!("anabranch ", env!("CARGO_PKG_VERSION")).to_owned());
    let mut writer = SerializedFileWriter::new(file, schema, Arc::new(properties.build()))?;
    for rows in transfers.chunks(ROW_GROUP) {
        let mut group = writer.next_row_group()?;
        for (_, column) in &COLUMNS {
            let Some(mut into) = group.next_column()? else {
                return Err(ParquetError::General(
                    "the schema lacks a column".to_owned(),
                ));
            };
            write_column(&mut into, column, rows)?;
            into.close()?;
        }
        group.close()?;
    }
    writer.close()?;
    Ok(())
}

fn write_column(
    into: &mut SerializedColumnWriter<'_>,
    column: &Column,
    rows: &[Transfer],
) -> Result<(), ParquetError> {
    let text = |text: &str| ByteArray::from(text.as_bytes().to_vec());
    match (into.untyped(), column) {
        (ColumnWriter::Int32ColumnWriter(into), Column::U32(of)) => {
            let values: Vec<i32> = rows.iter().map(|row| of(row).cast_signed()).collect();
            into.write_batch(&values, None, None)?;
        }
        (ColumnWriter::Int64ColumnWriter(into), Column::U64(of)) => {
            let values: Vec<i64> = rows.iter().map(|row| of(row).cast_signed()).collect();
            into.write_batch(&values, None, None)?;
        }
        (ColumnWriter::DoubleColumnWriter(into), Column::F64(of)) => {
            let values: Vec<f64> = rows.iter().map(of).collect();
            into.write_batch(&values, None, None)?;
        }
        (ColumnWriter::DoubleColumnWriter(into), Column::MaybeF64(of)) => {
            let values: Vec<f64> = rows.iter().filter_map(of).collect();
            into.write_batch(&values, Some(&present(rows, |row| of(row).is_some())), None)?;
        }
        (ColumnWriter::ByteArrayColumnWriter(into), Column::Text(of)) => {
            let values: Vec<ByteArray> = rows.iter().map(|row| text(&of(row))).collect();
            into.write_batch(&values, None, None)?;
        }
        (ColumnWriter::ByteArrayColumnWriter(into), Column::MaybeText(of)) => {
            let values: Vec<ByteArray> = rows.iter().filter_map(of).map(text).collect();
            into.write_batch(&values, Some(&present(rows, |row| of(row).is_some())), None)?;
        }
        _ => return Err(ParquetError::General("a column of another type".to_owned())),
    }
    Ok(())
}

/// Definition levels of an optional column.
fn present(rows: &[Transfer], is: impl Fn(&Transfer) -> bool) -> Vec<i16> {
    rows.iter().map(|row| i16::from(is(row))).collect()
}

fn read(path: &Path) -> Result<Vec<Transfer>, ParquetError> {
    let file = std::fs::File::open(path)?;
    let reader = SerializedFileReader::new(file)?;
    let rows = reader.get_row_iter(None)?;
    rows.map(|row| transfer(&row?)).collect()
}

/// The fields of a row, by name.
struct Fields<'a>(&'a Row);

impl Fields<'_> {
    fn get(&self, name: &str) -> Result<&Field, ParquetError> {
        let mut columns = self.0.get_column_iter();
        let found = columns.find(|(column, _)| *column == name);
        found
            .map(|(_, field)| field)
            .ok_or_else(|| ParquetError::General(format!("no column {name}")))
    }

    fn number(&self, name: &str) -> Result<u64, ParquetError> {
        match self.get(name)? {
            Field::UInt(value) => Ok(u64::from(*value)),
            Field::ULong(value) => Ok(*value),
            other => Err(unexpected(name, other)),
        }
    }

    fn small(&self, name: &str) -> Result<u32, ParquetError> {
        let value = self.number(name)?;
        u32::try_from(value)
            .map_err(|_| ParquetError::General(format!("{name}: {value} is too large")))
    }

    fn maybe_float(&self, name: &str) -> Result<Option<f64>, ParquetError> {
        match self.get(name)? {
            Field::Double(value) => Ok(Some(*value)),
            Field::Null => Ok(None),
            other => Err(unexpected(name, other)),
        }
    }

    fn float(&self, name: &str) -> Result<f64, ParquetError> {
        let value = self.maybe_float(name)?;
        value.ok_or_else(|| unexpected(name, &Field::Null))
    }

    fn maybe_text(&self, name: &str) -> Result<Option<String>, ParquetError> {
        match self.get(name)? {
            Field::Str(value) => Ok(Some(value.clone())),
            Field::Null => Ok(None),
            other => Err(unexpected(name, other)),
        }
    }

    fn direction(&self) -> Result<Direction, ParquetError> {
        let text = self.maybe_text("direction")?.unwrap_or_default();
        let mut both = Direction::BOTH.into_iter();
        both.find(|direction| direction.name() == text)
            .ok_or_else(|| ParquetError::General(format!("direction: \"{text}\" cannot be read")))
    }

    fn parsed<T: std::str::FromStr>(&self, name: &str) -> Result<T, ParquetError> {
        let text = self.maybe_text(name)?.unwrap_or_default();
        text.parse()
            .map_err(|_| ParquetError::General(format!("{name}: \"{text}\" cannot be read")))
    }
}

fn unexpected(name: &str, found: &Field) -> ParquetError {
    ParquetError::General(format!("{name}: unexpected {found}"))
}

fn transfer(row: &Row) -> Result<Transfer, ParquetError> {
    let fields = Fields(row);
    Ok(Transfer {
        id: TransferId(fields.number("id")?),
        user: UserId(fields.small("user")?),
        group: fields.maybe_text("group")?,
        source: fields.parsed("source")?,
        server: RemoteServerId(fields.small("server")?),
        class: fields.maybe_text("class")?,
        direction: fields.direction()?,
        round: fields.small("round")?,
        planned_start_s: fields.float("planned_start_s")?,
        start_s: fields.float("start_s")?,
        setup_s: fields.maybe_float("setup_s")?,
        first_byte_s: fields.maybe_float("first_byte_s")?,
        duration_s: fields.float("duration_s")?,
        bytes_asked: fields.number("bytes_asked")?,
        bytes: fields.number("bytes")?,
        link: fields.maybe_text("link")?,
        outcome: fields.parsed::<Outcome>("outcome")?,
        syn_retransmits: fields.small("syn_retransmits")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use anabranch_scenario::testing::transfer;

    fn transfers(count: u32) -> Vec<Transfer> {
        let transfer = |i: u32| Transfer {
            id: TransferId(u64::from(i)),
            setup_s: (!i.is_multiple_of(3)).then_some(0.25),
            link: (!i.is_multiple_of(5)).then(|| "lte".to_owned()),
            outcome: if i.is_multiple_of(7) {
                Outcome::HttpStatus(503)
            } else {
                Outcome::Ok
            },
            bytes_asked: u64::MAX - u64::from(i),
            group: i.is_multiple_of(2).then(|| "near".to_owned()),
            server: RemoteServerId(i % 4),
            class: (!i.is_multiple_of(4)).then(|| "web".to_owned()),
            direction: Direction::BOTH[i as usize % 2],
            source: [0xfd00, 0, 0, 0, 0, 0, 0, 1].into(),
            ..transfer(i, f64::from(i) / 3.0, 1.0 / 7.0)
        };
        (0..count).map(transfer).collect()
    }

    #[test]
    fn transfers_read_back_from_parquet_as_they_were_written() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("transfers.parquet");
        for count in [0, 1, 100] {
            let transfers = transfers(count);
            write_transfers_parquet(&path, &transfers).unwrap();
            assert_eq!(read_transfers_parquet(&path).unwrap(), transfers);
        }
    }

    #[test]
    fn the_columns_are_those_of_the_csv_in_their_order() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("transfers.csv");
        crate::write_transfers_csv(&path, &transfers(1)).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        let names: Vec<_> = COLUMNS.iter().map(|(name, _)| *name).collect();
        assert_eq!(text.lines().next(), Some(names.join(",").as_str()));
    }

    #[test]
    fn parquet_is_smaller_than_csv_and_is_parquet() {
        let directory = tempfile::tempdir().unwrap();
        let [parquet, csv] = ["a.parquet", "a.csv"].map(|name| directory.path().join(name));
        write_transfers_parquet(&parquet, &transfers(5000)).unwrap();
        crate::write_transfers_csv(&csv, &transfers(5000)).unwrap();
        let bytes = std::fs::read(&parquet).unwrap();
        assert_eq!(
            (&bytes[..4], &bytes[bytes.len() - 4..]),
            (&b"PAR1"[..], &b"PAR1"[..])
        );
        assert!((bytes.len() as u64) * 2 < std::fs::metadata(&csv).unwrap().len());
    }

    #[test]
    fn what_is_no_parquet_is_refused_with_its_path() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("broken.parquet");
        std::fs::write(&path, "PAR1 but not much more PAR1").unwrap();
        let error = read_transfers_parquet(&path).unwrap_err().to_string();
        assert!(error.starts_with(&path.display().to_string()), "{error}");
    }
}
