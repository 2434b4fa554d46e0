use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

/// What is no schedule at all.
const ALWAYS: &str = "always";
const DAYS: [&str; 7] = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];
const DAY: u16 = 24 * 60;
/// Minutes of a week.
pub(super) const WEEK: u16 = 7 * DAY;

/// A minute of the week, in local time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(u16);

impl Moment {
    /// `weekday` is 0 for Monday, `minute` counts from midnight; both wrap around.
    pub fn new(weekday: u8, minute: u16) -> Self {
        Moment(u16::from(weekday % 7) * DAY + minute % DAY)
    }

    /// Minutes since Monday's midnight.
    pub fn minute_of_week(self) -> u16 {
        self.0
    }
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (day, minute) = (self.0 / DAY, self.0 % DAY);
        write!(f, "{} {}", DAYS[usize::from(day)], Clock(minute))
    }
}

impl FromStr for Moment {
    type Err = BadSchedule;

    /// `mon 09:00`.
    fn from_str(text: &str) -> Result<Self, BadSchedule> {
        let (day, time) = text.split_once(' ').ok_or(BadSchedule::Moment)?;
        let day = day_of(day).ok_or(BadSchedule::Moment)?;
        let minute = minute_of(time).filter(|minute| *minute < DAY);
        Ok(Moment::new(day, minute.ok_or(BadSchedule::Moment)?))
    }
}

/// When a rule is active: in any of its windows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Schedule(Vec<Window>);

/// The time from a minute of each of its days on, of this length. A window that goes past midnight belongs to the day on which it
/// began.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Window {
    /// Bit i: the day i after Monday.
    days: u8,
    from: u16,
    minutes: u16,
}

impl Schedule {
    /// Whether it is active at this time.
    pub fn holds(&self, at: Moment) -> bool {
        self.0.iter().any(|window| window.holds(at))
    }

    /// Each window as files write it.
    pub(super) fn words(&self) -> Vec<String> {
        let word = |window: &Window| match window.to_string() {
            whole if whole == ALWAYS => "mon-sun".to_owned(),
            other => other,
        };
        self.0.iter().map(word).collect()
    }

    /// Its minutes of the week, as ranges.
    pub(super) fn ranges(&self) -> Vec<RangeInclusive<u128>> {
        self.0.iter().flat_map(Window::ranges).collect()
    }
}

impl Window {
    fn holds(&self, Moment(at): Moment) -> bool {
        let mut starts = self.starts();
        starts.any(|start| (at + WEEK - start) % WEEK < self.minutes)
    }

    fn starts(&self) -> impl Iterator<Item = u16> {
        let days = (0..7).filter(|day| self.days >> day & 1 == 1);
        days.map(|day| day * DAY + self.from)
    }

    fn ranges(&self) -> impl Iterator<Item = RangeInclusive<u128>> {
        self.starts().flat_map(|start| {
            let end = start + self.minutes;
            let past_sunday = end.saturating_sub(WEEK);
            let this_week = u128::from(start)..=u128::from(end.min(WEEK) - 1);
            let next_week = (past_sunday > 0).then(|| 0..=u128::from(past_sunday - 1));
            [Some(this_week), next_week].into_iter().flatten()
        })
    }
}

/// A text that is not a schedule, or not a moment.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadSchedule {
    /// Of a schedule.
    #[error(
        r#"write days, times or both, like "mon-fri 08:00-18:00", "sat,sun" or "22:00-06:00"; days: mon, tue, wed, thu, fri, sat, sun"#
    )]
    Shape,
    /// From a time to the same.
    #[error("is empty: it ends as it begins; leave the times out for whole days")]
    Empty,
    /// Of a moment.
    #[error(r#"write a day and a time, like "mon 09:00""#)]
    Moment,
}

/// All windows of a list of texts, each as `mon-fri 08:00-18:00`, `sat,sun`, or `22:00-06:00`.
impl<'a> FromIterator<&'a Schedule> for Schedule {
    fn from_iter<I: IntoIterator<Item = &'a Schedule>>(parts: I) -> Self {
        let windows = parts.into_iter().flat_map(|part| part.0.iter().cloned());
        Schedule(windows.collect())
    }
}

impl FromStr for Schedule {
    type Err = BadSchedule;

    /// One window: `mon-fri 08:00-18:00`, `sat,sun`, or `22:00-06:00`.
    fn from_str(text: &str) -> Result<Self, BadSchedule> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let (days, times) = match words[..] {
            [one] if one.contains(':') => (None, Some(one)),
            [one] => (Some(one), None),
            [days, times] => (Some(days), Some(times)),
            _ => return Err(BadSchedule::Shape),
        };
        let (from, minutes) = times.map_or(Ok((0, DAY)), times_of)?;
        let days = days.map_or(Some(0x7f), days_of);
        Ok(Schedule(vec![Window {
            days: days.ok_or(BadSchedule::Shape)?,
            from,
            minutes,
        }]))
    }
}

/// Parses `08:00-18:00` into the first minute and the number of minutes.
fn times_of(text: &str) -> Result<(u16, u16), BadSchedule> {
    let (from, to) = text.split_once('-').ok_or(BadSchedule::Shape)?;
    let from = minute_of(from).filter(|from| *from < DAY);
    let (from, to) = (
        from.ok_or(BadSchedule::Shape)?,
        minute_of(to).ok_or(BadSchedule::Shape)?,
    );
    match (to + DAY - from) % DAY {
        0 if from == to => Err(BadSchedule::Empty),
        0 => Ok((from, DAY)),
        minutes => Ok((from, minutes)),
    }
}

/// `08:00`, and `24:00` for the end of a day.
fn minute_of(text: &str) -> Option<u16> {
    let (hour, minute) = text.split_once(':')?;
    let digits = |text: &str| text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(hour) || !digits(minute) {
        return None;
    }
    let (hour, minute): (u16, u16) = (hour.parse().ok()?, minute.parse().ok()?);
    let sum = hour * 60 + minute;
    (minute < 60 && sum <= DAY).then_some(sum)
}

/// Parses `mon-fri,sun` into a bit for each day.
fn days_of(text: &str) -> Option<u8> {
    text.split(',').try_fold(0, |days, part| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (day_of(first)?, day_of(last)?);
        let count = (last + 7 - first) % 7;
        Some((0..=count).fold(days, |days, i| days | 1 << ((first + i) % 7)))
    })
}

fn day_of(text: &str) -> Option<u8> {
    let day = DAYS.iter().position(|day| text.eq_ignore_ascii_case(day))?;
    Some(day as u8)
}

/// A minute of a day.
struct Clock(u16);

impl fmt::Display for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:02}:{:02}", self.0 / 60, self.0 % 60)
    }
}

impl fmt::Display for Schedule {
    /// As it may be written.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let windows: Vec<String> = self.0.iter().map(Window::to_string).collect();
        f.write_str(&windows.join(" or "))
    }
}

impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let days = day_names(self.days);
        let to = (self.from + self.minutes) % DAY;
        match (self.days.count_ones(), self.minutes) {
            (7, DAY) => f.write_str(ALWAYS),
            (_, DAY) if self.from == 0 => f.write_str(&days),
            (7, _) => write!(f, "{}-{}", Clock(self.from), Clock(to)),
            _ => write!(f, "{days} {}-{}", Clock(self.from), Clock(to)),
        }
    }
}

/// As `days_of` reads them: three in a row or more are a range.
fn day_names(days: u8) -> String {
    let named: Vec<usize> = (0..7).filter(|day| days >> day & 1 == 1).collect();
    let runs = named.chunk_by(|one, next| one + 1 == *next);
    let words = runs.map(|run| match run {
        [first, _, .., last] => format!("{}-{}", DAYS[*first], DAYS[*last]),
        days => days
            .iter()
            .map(|day| DAYS[*day])
            .collect::<Vec<_>>()
            .join(","),
    });
    words.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holds(schedule: &str, at: &str) -> bool {
        let schedule: Schedule = schedule.parse().unwrap();
        schedule.holds(at.parse().unwrap())
    }

    #[test]
    fn a_window_begins_with_its_first_minute_and_ends_before_its_last() {
        for (at, expected) in [
            ("mon 07:59", false),
            ("mon 08:00", true),
            ("fri 17:59", true),
            ("fri 18:00", false),
            ("sat 12:00", false),
        ] {
            assert_eq!(holds("mon-fri 08:00-18:00", at), expected, "{at}");
        }
    }

    #[test]
    fn a_night_belongs_to_the_day_it_began_on() {
        for (at, expected) in [
            ("fri 21:59", false),
            ("fri 22:00", true),
            ("sat 05:59", true),
            ("sat 06:00", false),
            ("sat 22:00", false),
            ("fri 05:00", false),
        ] {
            assert_eq!(holds("fri 22:00-06:00", at), expected, "{at}");
        }
        assert!(holds("sun 22:00-06:00", "mon 03:00"));
        assert!(holds("sun 23:00-24:00", "sun 23:59"));
        assert!(!holds("sun 23:00-24:00", "mon 00:00"));
    }

    #[test]
    fn days_may_be_a_list_or_go_around_the_week() {
        for (schedule, at, expected) in [
            ("sat-mon", "sun 00:00", true),
            ("sat-mon", "mon 23:59", true),
            ("sat-mon", "tue 00:00", false),
            ("Mon,wed", "wed 12:00", true),
            ("mon,wed", "tue 12:00", false),
            ("22:00-06:00", "wed 02:00", true),
        ] {
            assert_eq!(holds(schedule, at), expected, "{schedule} at {at}");
        }
    }

    #[test]
    fn every_minute_of_the_week_is_in_the_ranges_if_the_schedule_holds() {
        for text in [
            "sun,tue 22:30-06:10",
            "mon-fri 08:00-18:00",
            "sat-mon",
            "23:59-24:00",
        ] {
            let schedule: Schedule = text.parse().unwrap();
            let ranges = schedule.ranges();
            for minute in 0..WEEK {
                let listed = ranges.iter().any(|range| range.contains(&minute.into()));
                assert_eq!(schedule.holds(Moment(minute)), listed, "{text} at {minute}");
            }
        }
    }

    #[test]
    fn what_is_no_schedule_is_told_how_to_write_one() {
        for text in [
            "",
            "noon",
            "mon-fri 8-18",
            "mon 08:00",
            "mon 25:00-26:00",
            "a b c",
        ] {
            assert_eq!(text.parse::<Schedule>(), Err(BadSchedule::Shape), "{text}");
        }
        assert_eq!("08:00-08:00".parse::<Schedule>(), Err(BadSchedule::Empty));
        assert_eq!("24:00-08:00".parse::<Schedule>(), Err(BadSchedule::Shape));
        assert_eq!("mon 24:00".parse::<Moment>(), Err(BadSchedule::Moment));
    }

    #[test]
    fn a_schedule_is_shown_as_it_may_be_written() {
        for text in [
            "mon,tue 08:00-18:00",
            "mon-fri,sun 08:00-18:00",
            "sat,sun",
            "22:00-06:00",
        ] {
            assert_eq!(text.parse::<Schedule>().unwrap().to_string(), text);
        }
        assert_eq!(
            "tue 09:05".parse::<Moment>().unwrap().to_string(),
            "tue 09:05"
        );
    }
}
