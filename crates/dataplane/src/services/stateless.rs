//! Where packets without an entry go: `bpf/lib/service/stateless.h`.

use std::time::Duration;

use anabranch_core::Family;
use anabranch_policy::abi::{
    Client, Consistent, ServiceSettings, service_rows_place as rows_place,
};
use aya::maps::MapError;

use super::{ServiceId, Services};
use crate::{Error, clock::monotonic_now, error::absent};

impl Services {
    /// The settings of a service, as they were written last.
    ///
    /// # Errors
    /// The kernel refuses the read.
    pub fn settings(&self, service: ServiceId) -> Result<ServiceSettings, Error> {
        let settings = self.object.settings.get(&service.0.into(), 0);
        settings.map_err(Error::map("service_settings"))
    }

    /// Writes the settings of a service, but for the kinds of its connections, which come with its servers.
    ///
    /// # Errors
    /// The kernel refuses the map update.
    pub fn set_settings(
        &mut self,
        service: ServiceId,
        settings: ServiceSettings,
    ) -> Result<(), Error> {
        let known = self.settings(service)?;
        if known.client_limit == 0 && settings.client_limit != 0 {
            self.forget_clients(service)?;
        }
        let kinds = known.kinds;
        self.write_settings(service, ServiceSettings { kinds, ..settings })
    }

    /// Counts of clients are of the time when there was a limit.
    fn forget_clients(&mut self, service: ServiceId) -> Result<(), Error> {
        let failed = || Error::map("service_clients");
        let known: Result<Vec<Client>, _> = self.object.clients.keys().collect();
        let of_service = known.map_err(failed())?.into_iter();
        for client in of_service.filter(|one| one.service == u32::from(service.0)) {
            absent(self.object.clients.remove(&client)).map_err(failed())?;
        }
        Ok(())
    }

    pub(super) fn write_settings(
        &mut self,
        service: ServiceId,
        settings: ServiceSettings,
    ) -> Result<(), Error> {
        let set = self.object.settings.set(service.0.into(), settings, 0);
        set.map_err(Error::map("service_settings"))
    }

    /// Which server each row of hashes leads to for clients of a family, if packets go by rows. Rows that were others before count as
    /// the former ones for `former_lasts`.
    ///
    /// # Errors
    /// The kernel refuses a map update.
    pub fn set_rows(
        &mut self,
        service: ServiceId,
        family: Family,
        rows: Option<&Consistent>,
        former_lasts: Duration,
    ) -> Result<(), Error> {
        let [place, former] = [false, true].map(|former| rows_place(service.0, family, former));
        let known = self.read_rows(place)?;
        if known.as_deref() == rows {
            return Ok(());
        }
        self.write_rows(former, known.as_deref().filter(|_| rows.is_some()))?;
        let former_until = monotonic_now() + former_lasts;
        self.write_rows(place, rows)?;
        let settings = ServiceSettings {
            former_until_ns: former_until.as_nanos() as u64,
            ..self.settings(service)?
        };
        self.set_settings(service, settings)
    }

    fn read_rows(&self, place: u32) -> Result<Option<Box<Consistent>>, Error> {
        match self.object.rows.get(&place, 0) {
            Ok(rows) => Ok(Some(Box::new(rows))),
            Err(MapError::KeyNotFound) => Ok(None),
            Err(error) => Err(Error::map("service_rows")(error)),
        }
    }

    fn write_rows(&mut self, place: u32, rows: Option<&Consistent>) -> Result<(), Error> {
        let set = match rows {
            Some(rows) => self.object.rows.insert(place, rows, 0),
            None => absent(self.object.rows.remove(&place)),
        };
        set.map_err(Error::map("service_rows"))
    }
}
